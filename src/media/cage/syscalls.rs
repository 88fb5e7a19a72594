//! What may be asked of the kernel: seccomp. A list of what no transcoding needs and what breakouts are made of; it answers
//! EPERM. An allow list would be tighter and would break with every other build of ffmpeg and of its forty libraries.

use std::env::consts::ARCH;

use seccompiler::{BpfMap, TargetArch, apply_filter, compile_from_json, sock_filter};
use serde_json::{Value, json};

/// Any network, other processes and new ones, mounts, namespaces, keys, the kernel's own machinery, links out of the outputs;
/// and what Landlock does not hold: modes, owners, times and attributes of files that may not even be opened, and (before
/// Linux 6.2) their length.
const DENIED: &str = "socket socketpair connect bind listen accept accept4 sendto sendmmsg \
    ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_open pidfd_getfd pidfd_send_signal \
    kill tkill rt_sigqueueinfo rt_tgsigqueueinfo setpgid setsid \
    mount umount2 mount_setattr open_tree move_mount fsopen fsmount fspick fsconfig pivot_root chroot \
    unshare setns keyctl add_key request_key bpf perf_event_open userfaultfd fanotify_init \
    io_uring_setup io_uring_enter io_uring_register \
    kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff acct quotactl \
    open_by_handle_at name_to_handle_at linkat symlinkat mknodat personality syslog \
    fchmod fchmodat fchmodat2 fchown fchownat setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr \
    utimensat truncate inotify_init1 inotify_add_watch shmget msgget semget mq_open \
    process_mrelease sched_setscheduler sched_setattr sched_setparam ioprio_set \
    settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname vhangup";
/// Those that only this architecture has.
const DENIED_X86: &str = "fork vfork link symlink mknod iopl ioperm modify_ldt uselib \
    chmod chown lchown utime utimes futimesat inotify_init";
/// Of itself it may ask these, of no other process: which argument names the process, 0 for itself.
const ONLY_ITSELF: [(&str, u8); 3] = [("prlimit64", 0), ("sched_setaffinity", 0), ("setpriority", 1)];

/// `CLONE_NEW…`: cgroup, uts, ipc, user, pid, net, mounts, time.
const NAMESPACES: [u64; 8] =
    [0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000, 0x0002_0000, 0x0000_0080];
/// A clone without it is a fork.
const CLONE_THREAD: u64 = 0x0001_0000;
const PR_SET_PDEATHSIG: u64 = 1;
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// Locks this process in. `false`: there is none for this architecture, or the kernel has none.
pub(super) fn lock() -> bool {
    let Some(filters) = compiled() else { return false };
    // The narrow ones first: each filter stands above the earlier ones, and all of them are asked.
    (ARCH != "x86_64" || apply_filter(&OTHER_NUMBERS).is_ok())
        && ["clone3", "denied"]
            .into_iter()
            .all(|name| filters.get(name).is_some_and(|it| apply_filter(it).is_ok()))
}

/// An x86-64 kernel may know a second set of numbers for the same calls (x32), from here on: a list of numbers would deny none
/// of them. In the words of the kernel's filter machine: load the number; is it one of those? EPERM; else allowed.
const X32: u32 = 0x4000_0000;
const OTHER_NUMBERS: [sock_filter; 4] = [
    sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 },
    sock_filter { code: 0x35, jt: 0, jf: 1, k: X32 },
    sock_filter { code: 0x06, jt: 0, jf: 0, k: 0x0005_0000 | EPERM },
    sock_filter { code: 0x06, jt: 0, jf: 0, k: 0x7fff_0000 },
];

fn compiled() -> Option<BpfMap> {
    let arch = TargetArch::try_from(ARCH).ok()?;
    compile_from_json(filters().to_string().as_bytes(), arch).ok()
}

fn filters() -> Value {
    let more = if ARCH == "x86_64" { DENIED_X86 } else { "" };
    let mut denied: Vec<Value> = DENIED
        .split_whitespace()
        .chain(more.split_whitespace())
        .map(|name| json!({"syscall": name}))
        .collect();
    denied.extend(NAMESPACES.map(|flag| {
        json!({"syscall": "clone", "args": [{"index": 0, "type": "qword", "op": {"masked_eq": flag}, "val": flag}]})
    }));
    denied.push(
        json!({"syscall": "clone", "args": [{"index": 0, "type": "qword", "op": {"masked_eq": CLONE_THREAD}, "val": 0}]}),
    );
    denied.extend(ONLY_ITSELF.map(|(name, index)| {
        json!({"syscall": name, "args": [{"index": index, "type": "dword", "op": "ne", "val": 0}]})
    }));
    // Nor may it forget that it dies with its worker.
    denied.push(
        json!({"syscall": "prctl", "args": [{"index": 0, "type": "dword", "op": "eq", "val": PR_SET_PDEATHSIG}]}),
    );
    // A program may abort itself, and send no signal to anybody else.
    let me = std::process::id();
    denied.push(json!({"syscall": "tgkill", "args": [{"index": 0, "type": "dword", "op": "ne", "val": me}]}));
    json!({
        "denied": filter(&Value::from(denied), EPERM),
        // Its flags are out of a filter's sight. Without it, glibc takes clone.
        "clone3": filter(&json!([{"syscall": "clone3"}]), ENOSYS),
    })
}

fn filter(rules: &Value, answer: u32) -> Value {
    json!({"mismatch_action": "allow", "match_action": {"errno": answer}, "filter": rules})
}

#[cfg(test)]
mod tests {
    /// A kernel that does not know them would say ENOSYS, 38; the filter is asked first.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn calls_by_other_numbers_are_denied() {
        let asked = std::thread::spawn(|| {
            assert!(seccompiler::apply_filter(&super::OTHER_NUMBERS).is_ok());
            let getpid = "import ctypes; c = ctypes.CDLL(None, use_errno=True); \
                          print(c.syscall(39) > 0, c.syscall(0x40000000 + 39), ctypes.get_errno())";
            std::process::Command::new("python3").args(["-c", getpid]).output().map(|said| said.stdout)
        });
        let said = asked.join().map(Result::unwrap_or_default).unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(&said), "True -1 1\n");
    }

    #[test]
    fn the_list_is_known_on_this_architecture() {
        assert_eq!(super::compiled().map(|filters| filters.len()), Some(2));
    }
}
