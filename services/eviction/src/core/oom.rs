//! Parses the kernel log for processes killed by the OOM killer, in the formats of all kernels.

/// A record of the kernel log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KmsgRecord<'a> {
    /// Microseconds since boot.
    pub(crate) at: u64,
    pub(crate) text: &'a str,
}

/// Parses a record of `/dev/kmsg`: `priority,sequence,microseconds,flags;text`, followed by lines of
/// details.
pub(crate) fn parse_record(raw: &[u8]) -> Option<KmsgRecord<'_>> {
    let raw = std::str::from_utf8(raw).ok()?;
    let (head, rest) = raw.split_once(';')?;
    let at = head.split(',').nth(2)?.parse().ok()?;
    let text = rest.lines().next()?;
    Some(KmsgRecord { at, text })
}

/// A process killed by the OOM killer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OomVictim {
    /// The cgroup that reached its limit; `None` when the machine is out of memory.
    cgroup: Option<String>,
    process: String,
    pid: i64,
}

impl OomVictim {
    /// The message of upstream's `SystemOOM` event; `None` when a cgroup reached its own limit.
    pub(crate) fn event_message(&self) -> Option<String> {
        if self.cgroup.as_deref().is_some_and(|cgroup| cgroup != "/") {
            return None;
        }
        let message = "System OOM encountered";
        if self.process.is_empty() || self.pid == 0 {
            return Some(message.to_owned());
        }
        let (process, pid) = (&self.process, self.pid);
        Some(format!("{message}, victim process: {process}, pid: {pid}"))
    }
}

/// Combines the records about one process.
#[derive(Debug, Default)]
pub(crate) struct OomLogParser {
    incomplete: Option<OomVictim>,
}

impl OomLogParser {
    /// Takes the next record. Returns the process with the last record about it.
    pub(crate) fn parse(&mut self, text: &str) -> Option<OomVictim> {
        let Some(victim) = &mut self.incomplete else {
            if text.contains("invoked oom-killer:") {
                self.incomplete = Some(OomVictim::default());
            }
            return None;
        };
        let complete = match parse_summary(text) {
            Some(all) => {
                *victim = all;
                true
            }
            None => {
                if let Some(cgroup) = parse_limit(text) {
                    victim.cgroup = Some(cgroup);
                }
                parse_last(text, victim)
            }
        };
        match complete {
            true => self.incomplete.take(),
            false => None,
        }
    }
}

/// The summary line of kernels since 5.0 for a cgroup at its limit.
fn parse_summary(text: &str) -> Option<OomVictim> {
    let (_, rest) = text.split_once("oom-kill:constraint=")?;
    let field = |key: &str, next: &str| {
        let (_, after) = rest.split_once(key)?;
        after.rsplit_once(next).map(|(value, _)| value.to_owned())
    };
    Some(OomVictim {
        cgroup: Some(field(",oom_memcg=", ",task_memcg=")?),
        process: field(",task=", ",pid=")?,
        pid: field(",pid=", ",uid=")?.parse().ok()?,
    })
}

/// The cgroup at its limit, in the format of older kernels.
fn parse_limit(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("Task in ")?;
    let (_, cgroup) = rest.split_once(" killed as a result of limit of ")?;
    Some(cgroup.trim_end().to_owned())
}

/// The last line, with the process.
fn parse_last(text: &str, victim: &mut OomVictim) -> bool {
    let parse = || {
        let (_, rest) = text.split_once("Killed process ")?;
        let (pid, rest) = rest.split_once(" (")?;
        let (process, _) = rest.rsplit_once(')')?;
        Some((pid.parse().ok()?, process.to_owned()))
    };
    let Some((pid, process)) = parse() else {
        return false;
    };
    (victim.pid, victim.process) = (pid, process);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(log: &[&str]) -> Vec<Option<String>> {
        let mut parser = OomLogParser::default();
        let all = log.iter().filter_map(|text| parser.parse(text));
        all.map(|victim| victim.event_message()).collect()
    }

    const FIRST: &str = "stress invoked oom-killer: gfp_mask=0x100dca(GFP_HIGHUSER), order=0";

    #[test]
    fn system_oom_has_an_event_message() {
        let log = [
            "something else, Killed process 1 (x)",
            FIRST,
            "CPU: 0 PID: 12 Comm: stress Not tainted",
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user,task=stress,pid=12,uid=0",
            "Out of memory: Killed process 12 (stress (x)) total-vm:8kB, anon-rss:4kB",
            "oom_reaper: reaped process 12 (stress)",
        ];
        let message = "System OOM encountered, victim process: stress (x), pid: 12";
        assert_eq!(messages(&log), [Some(message.to_owned())]);
    }

    #[test]
    fn oom_of_a_cgroup_has_no_event_message() {
        let new = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c1,mems_allowed=0,oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c1,task=sleep,pid=7,uid=0";
        let old = "Task in /kubepods/pod1/c1 killed as a result of limit of /kubepods/pod1";
        let killed = "Memory cgroup out of memory: Killed process 7 (sleep) total-vm:8kB";
        assert_eq!(messages(&[FIRST, new, killed]), [None]);
        assert_eq!(messages(&[FIRST, old, killed, killed]), [None]);
        // The root cgroup is the machine.
        let root = "Task in /a killed as a result of limit of /";
        assert_eq!(messages(&[FIRST, root, killed]).len(), 1);
        assert!(messages(&[FIRST, root, killed])[0].is_some());
    }

    #[test]
    fn kmsg_records_are_parsed() {
        let raw = b"6,189060,49164153953,-;a; b\n SUBSYSTEM=net\n";
        let text = "a; b";
        let at = 49_164_153_953;
        assert_eq!(parse_record(raw), Some(KmsgRecord { at, text }));
        for bad in [&b"6,1;x"[..], b"", b"\xff;", b"6,1,x,-;y", b"6,1,2,-;"] {
            assert_eq!(parse_record(bad), None, "{bad:?}");
        }
    }
}
