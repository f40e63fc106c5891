//! What the kernel's log says of processes that it killed for memory, in its words of all times.

/// A record of the log: since the machine started, in microseconds, and its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) at: u64,
    pub(crate) text: &'a str,
}

/// Reads one record as `/dev/kmsg` gives it: `priority,sequence,microseconds,flags;words`, and lines
/// of details after that.
pub(crate) fn record(raw: &[u8]) -> Option<Record<'_>> {
    let raw = std::str::from_utf8(raw).ok()?;
    let (head, rest) = raw.split_once(';')?;
    let at = head.split(',').nth(2)?.parse().ok()?;
    let text = rest.lines().next()?;
    Some(Record { at, text })
}

/// A process that was killed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Killed {
    /// The cgroup that had no more memory; none where that was the whole machine.
    cgroup: Option<String>,
    process: String,
    pid: i64,
}

impl Killed {
    /// What people are told of it: nothing where a cgroup's own limit was met.
    pub(crate) fn told(&self) -> Option<String> {
        if self.cgroup.as_deref().is_some_and(|cgroup| cgroup != "/") {
            return None;
        }
        let said = "System OOM encountered";
        if self.process.is_empty() || self.pid == 0 {
            return Some(said.to_owned());
        }
        let (process, pid) = (&self.process, self.pid);
        Some(format!("{said}, victim process: {process}, pid: {pid}"))
    }
}

/// Puts together what the log says in several records.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    open: Option<Killed>,
}

impl Reader {
    /// The next record; says so when one ends what is told of a process.
    pub(crate) fn read(&mut self, text: &str) -> Option<Killed> {
        let Some(killed) = &mut self.open else {
            if text.contains("invoked oom-killer:") {
                self.open = Some(Killed::default());
            }
            return None;
        };
        let ended = match summary(text) {
            Some(all) => {
                *killed = all;
                true
            }
            None => {
                if let Some(cgroup) = limit_of(text) {
                    killed.cgroup = Some(cgroup);
                }
                last(text, killed)
            }
        };
        match ended {
            true => self.open.take(),
            false => None,
        }
    }
}

/// The one line that kernels since 5.0 have for it, where a cgroup's limit was met.
fn summary(text: &str) -> Option<Killed> {
    let (_, rest) = text.split_once("oom-kill:constraint=")?;
    let of = |key: &str, next: &str| {
        let (_, after) = rest.split_once(key)?;
        after.rsplit_once(next).map(|(is, _)| is.to_owned())
    };
    Some(Killed {
        cgroup: Some(of(",oom_memcg=", ",task_memcg=")?),
        process: of(",task=", ",pid=")?,
        pid: of(",pid=", ",uid=")?.parse().ok()?,
    })
}

/// The cgroup whose limit was met, in the words of older kernels.
fn limit_of(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("Task in ")?;
    let (_, cgroup) = rest.split_once(" killed as a result of limit of ")?;
    Some(cgroup.trim_end().to_owned())
}

/// The last line: who it was.
fn last(text: &str, killed: &mut Killed) -> bool {
    let read = || {
        let (_, rest) = text.split_once("Killed process ")?;
        let (pid, rest) = rest.split_once(" (")?;
        let (process, _) = rest.rsplit_once(')')?;
        Some((pid.parse().ok()?, process.to_owned()))
    };
    let Some((pid, process)) = read() else {
        return false;
    };
    (killed.pid, killed.process) = (pid, process);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(log: &[&str]) -> Vec<Option<String>> {
        let mut reader = Reader::default();
        let all = log.iter().filter_map(|text| reader.read(text));
        all.map(|killed| killed.told()).collect()
    }

    const FIRST: &str = "stress invoked oom-killer: gfp_mask=0x100dca(GFP_HIGHUSER), order=0";

    #[test]
    fn the_whole_machine_is_out_of_memory() {
        let log = [
            "something else, Killed process 1 (x)",
            FIRST,
            "CPU: 0 PID: 12 Comm: stress Not tainted",
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user,task=stress,pid=12,uid=0",
            "Out of memory: Killed process 12 (stress (x)) total-vm:8kB, anon-rss:4kB",
            "oom_reaper: reaped process 12 (stress)",
        ];
        let said = "System OOM encountered, victim process: stress (x), pid: 12";
        assert_eq!(told(&log), [Some(said.to_owned())]);
    }

    #[test]
    fn a_containers_limit_is_no_matter_of_the_machine() {
        let new = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c1,mems_allowed=0,oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c1,task=sleep,pid=7,uid=0";
        let old = "Task in /kubepods/pod1/c1 killed as a result of limit of /kubepods/pod1";
        let killed = "Memory cgroup out of memory: Killed process 7 (sleep) total-vm:8kB";
        assert_eq!(told(&[FIRST, new, killed]), [None]);
        assert_eq!(told(&[FIRST, old, killed, killed]), [None]);
        // The limit of all pods together is the machine's to whoever set it for the root.
        let root = "Task in /a killed as a result of limit of /";
        assert_eq!(told(&[FIRST, root, killed]).len(), 1);
        assert!(told(&[FIRST, root, killed])[0].is_some());
    }

    #[test]
    fn records_of_the_log() {
        let raw = b"6,189060,49164153953,-;a; b\n SUBSYSTEM=net\n";
        let text = "a; b";
        let at = 49_164_153_953;
        assert_eq!(record(raw), Some(Record { at, text }));
        for bad in [&b"6,1;x"[..], b"", b"\xff;", b"6,1,x,-;y", b"6,1,2,-;"] {
            assert_eq!(record(bad), None, "{bad:?}");
        }
    }
}
