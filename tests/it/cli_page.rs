//! docs/cli.md: every command with its help as it is. `make schema` writes the blocks.

use std::fs;
use std::process::Command;

const PAGE: &str = "docs/cli.md";

/// What `euterpe … --help` prints, in an empty environment.
fn help(words: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_euterpe")).args(words).arg("--help").env_clear().output().unwrap();
    assert!(output.status.success(), "{words:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // An editor would take them away, and a diff would show nothing.
    text.trim_end().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// The commands below `words`, as its help lists them.
fn below(words: &[&str]) -> Vec<String> {
    let help = help(words);
    let Some((_, list)) = help.split_once("Commands:\n") else { return Vec::new() };
    let names = list.lines().take_while(|line| line.starts_with("  "));
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Every command that does something.
fn commands() -> Vec<String> {
    let mut found = Vec::new();
    for name in below(&[]).into_iter().filter(|name| name != "help") {
        match below(&[&name]) {
            inner if inner.is_empty() => found.push(name),
            inner => found
                .extend(inner.iter().filter(|inner| *inner != "help").map(|inner| format!("{name} {inner}"))),
        }
    }
    found
}

#[test]
fn the_page_shows_the_help_of_every_command_as_it_is() {
    let mut page = fs::read_to_string(PAGE).unwrap();
    let mut written = String::new();
    let mut rest = page.as_str();
    let mut shown = Vec::new();
    while let Some((before, after)) = rest.split_once("```console\n$ euterpe ") {
        let (command, after) = after.split_once('\n').unwrap();
        let (_, after) = after.split_once("```").unwrap();
        let words = command.strip_suffix("--help").expect("blocks show help").trim();
        let now = help(&words.split_whitespace().collect::<Vec<_>>());
        written += &format!("{before}```console\n$ euterpe {command}\n{now}\n```");
        shown.push(words.to_owned());
        rest = after;
    }
    written += rest;
    if std::env::var_os("EUTERPE_WRITE_SCHEMA").is_some() {
        fs::write(PAGE, &written).unwrap();
        page.clone_from(&written);
    }
    for (is, should) in page.lines().zip(written.lines()) {
        assert_eq!(is, should, "run make schema");
    }
    assert_eq!(page, written, "run make schema");

    let all = commands();
    assert!(all.len() > 20, "{all:?}");
    for command in &all {
        assert!(shown.contains(command), "{PAGE} does not show `euterpe {command} --help`");
    }
    for command in shown.iter().filter(|command| !command.is_empty()) {
        assert!(all.contains(command), "{PAGE} shows {command}");
        let help = help(&command.split(' ').collect::<Vec<_>>());
        assert!(help.contains("Example: "), "{command}: {help}");
    }
}

/// What the programs answer with is on the page.
#[test]
fn the_page_lists_every_exit_code() {
    let page = fs::read_to_string(PAGE).unwrap();
    let help = help(&[]);
    let (_, codes) = help.split_once("Exit codes:\n").unwrap();
    let codes: Vec<_> = codes.lines().take_while(|line| line.starts_with("  ")).collect();
    assert_eq!(codes.len(), 7);
    for line in codes {
        let code = line.split_whitespace().next().unwrap();
        assert!(page.contains(&format!("| {code} |")), "{code}");
    }
}

/// Which release is it? Every program says so, and nothing else.
#[test]
fn every_program_says_its_version() {
    for program in [
        env!("CARGO_BIN_EXE_euterpe"),
        env!("CARGO_BIN_EXE_euterpe-api"),
        env!("CARGO_BIN_EXE_euterpe-transcode"),
        env!("CARGO_BIN_EXE_euterpe-webhook"),
        env!("CARGO_BIN_EXE_euterpe-migrate"),
    ] {
        let output = Command::new(program).arg("--version").env_clear().output().unwrap();
        let name = program.rsplit('/').next().unwrap();
        let version = format!("{name} {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), version);
    }
}
