//! Contract §2: POD_NAME, then HOSTNAME, then a boot UUID; a new identity per process start.

use euterpe::domain::WorkerId;

fn boot(variables: &'static [(&str, &str)]) -> WorkerId {
    WorkerId::of_this_boot(|name| {
        variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn the_pod_name_comes_first() {
    let id = boot(&[("POD_NAME", "pod-7"), ("HOSTNAME", "host-1")]);
    assert!(id.as_str().starts_with("pod-7#"), "{id}");
}

#[test]
fn then_the_host_name_also_when_the_pod_name_is_empty() {
    for variables in [&[("HOSTNAME", "host-1")][..], &[("POD_NAME", " "), ("HOSTNAME", "host-1")]] {
        let id = boot(variables);
        assert!(id.as_str().starts_with("host-1#"), "{id}");
    }
}

#[test]
fn with_neither_the_whole_boot_uuid() {
    let id = boot(&[]);
    assert!(uuid::Uuid::parse_str(id.as_str()).is_ok(), "{id}");
}

/// A restarted pod keeps its name; it must not inherit its past.
#[test]
fn a_second_start_is_another_worker() {
    let (first, second) = (boot(&[("POD_NAME", "pod-7")]), boot(&[("POD_NAME", "pod-7")]));
    assert_ne!(first, second);
    let (name, boot) = first.as_str().split_once('#').unwrap();
    assert_eq!(name, "pod-7");
    assert!(boot.len() == 8 && boot.bytes().all(|b| b.is_ascii_hexdigit()), "{first}");
}

#[test]
fn a_name_without_end_is_cut() {
    let id = WorkerId::of_this_boot(|_| Some("x".repeat(5000)));
    assert!(id.as_str().len() <= 300, "the database takes at most 300 characters");
}
