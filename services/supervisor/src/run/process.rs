//! What the kernel says of a process that does not end.

use std::fs;

/// The bit of SIGKILL in the kernel's masks of signals.
const KILL_BIT: u64 = 1 << 8;

/// Whether a process has been killed and is still there: a thread of it waits in a system call that
/// cannot be interrupted. It serves nobody any more, but its locks are released only at its end.
pub(super) fn is_dying(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    threads.flatten().any(|thread| {
        let status = fs::read_to_string(thread.path().join("status"));
        status.is_ok_and(|status| is_thread_dying(&status))
    })
}

/// Whether a thread has ended, or is to end by a pending SIGKILL.
fn is_thread_dying(status: &str) -> bool {
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim())
    };
    let is_killed = |name: &str| {
        let mask = field(name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
        mask.is_some_and(|mask| mask & KILL_BIT != 0)
    };
    field("State").is_some_and(|state| state.starts_with(['Z', 'X']))
        || is_killed("SigPnd")
        || is_killed("ShdPnd")
}

/// Describes a process that was killed and is still there, with what its threads wait for.
pub(super) fn describe_unkillable(pid: u32) -> String {
    let waits = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("wchan")).ok())
        .find(|function| !matches!(function.as_str(), "" | "0"));
    match waits {
        Some(function) => {
            format!("process {pid} was killed but waits in the kernel ({function})")
        }
        None => format!("process {pid} was killed but waits in the kernel"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killed_threads_are_recognized() {
        let status = |state: &str, own: u64, shared: u64| {
            format!("Name:\tx\nState:\t{state}\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n")
        };
        assert!(!is_thread_dying(&status("S (sleeping)", 0, 0)));
        assert!(!is_thread_dying(&status("D (disk sleep)", 0x4000, 0x2)));
        assert!(is_thread_dying(&status("D (disk sleep)", 0x100, 0)));
        assert!(is_thread_dying(&status("D (disk sleep)", 0, 0x100)));
        assert!(is_thread_dying(&status("Z (zombie)", 0, 0)));
        assert!(!is_thread_dying(""));
    }

    #[test]
    fn this_process_lives() {
        assert!(!is_dying(std::process::id()));
        assert!(!is_dying(u32::MAX));
        let text = describe_unkillable(u32::MAX);
        assert!(
            text.ends_with("was killed but waits in the kernel"),
            "{text}"
        );
    }
}
