//! Rebuild when a migration or a function is added: the macros that embed them do not notice by themselves. And read
//! from the store which functions it calls, so that nobody has to keep a list.

use std::collections::BTreeSet;
use std::fs;

fn main() {
    for watched in ["migrations", "sql", "src/store"] {
        println!("cargo:rerun-if-changed={watched}");
    }
    println!("cargo:rustc-env=EUTERPE_CALLS={}", called().into_iter().collect::<Vec<_>>().join(","));
}

/// Every `euterpe.some_name_v1(` of `src/store/`.
fn called() -> BTreeSet<String> {
    let files = fs::read_dir("src/store").expect("cargo runs this in the package's directory");
    let texts = files.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
    let calls =
        texts.flat_map(|text| text.split("euterpe.").skip(1).filter_map(function).collect::<Vec<_>>());
    calls.collect()
}

/// The name at the beginning of `text`, when it is that of a public function and its arguments follow.
fn function(text: &str) -> Option<String> {
    let (name, _) = text.split_once('(')?;
    let (stem, version) = name.rsplit_once("_v")?;
    let is_name = stem.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    (is_name && !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| name.to_owned())
}
