//! What may be opened: Landlock. Programs and libraries, the source to read, the place of outputs to write; no other file,
//! no TCP port, no signal to anybody outside. It holds for root too.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

/// The newest rules that we know the meaning of. An older kernel enforces what it has of them.
const RULES: ABI = ABI::V6;

/// Where programs and their libraries are.
const PROGRAMS: [&str; 7] =
    ["/usr", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/nix/store"];
const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/urandom"];

/// Locks this process in: `program` may run, `dir/input` be read, `dir/out` be written. Answers the kernel's version of
/// Landlock, or `None` when it has none.
pub(super) fn lock(dir: &Path, program: Option<&Path>) -> Result<Option<i32>, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    // No links: what the worker uploads must be a file that ffmpeg wrote itself.
    let write: BitFlags<AccessFs> =
        read | AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Truncate;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RULES))?
        .handle_access(AccessNet::from_all(RULES))?
        .scope(Scope::from_all(RULES))?
        .create()?
        .add_rules(path_beneath_rules(PROGRAMS, read | AccessFs::Execute))?
        .add_rules(path_beneath_rules(program, AccessFs::ReadFile | AccessFs::Execute))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?
        .add_rules(path_beneath_rules([dir.join("input")], AccessFs::ReadFile))?
        .add_rules(path_beneath_rules([dir.join("out")], write))?
        .restrict_self()?;
    Ok(match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if status.ruleset != RulesetStatus::NotEnforced => {
            Some(effective_abi as i32)
        }
        _ => None,
    })
}
