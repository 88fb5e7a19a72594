//! How much memory is left: of the machine, or of the control group that we are in.

use std::fs;

/// Bytes; `None`: nobody says.
pub(super) fn available() -> Option<u64> {
    [of_the_machine(), of_the_group()].into_iter().flatten().min()
}

fn of_the_machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Control groups of version 2. What the kernel could drop at once counts as free.
fn of_the_group() -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse().ok()
    };
    let droppable = fs::read_to_string("/sys/fs/cgroup/memory.stat").ok().and_then(|text| {
        text.lines().find_map(|line| line.strip_prefix("inactive_file "))?.trim().parse::<u64>().ok()
    });
    let used = number("memory.current")?.saturating_sub(droppable.unwrap_or(0));
    Some(number("memory.max")?.saturating_sub(used))
}
