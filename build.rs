//! Rebuild when a migration or a function is added: the macros that embed them do not notice by themselves.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rerun-if-changed=sql");
}
