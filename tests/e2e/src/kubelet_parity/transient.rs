//! Whether a transient state reported by one agent is consistent with the other's reports: a state
//! between two reports of the other shows in its consequences.

use std::collections::{BTreeMap, BTreeSet};

/// Parsed transient lines of one pod.
#[derive(Debug, Default)]
pub(super) struct TransientStates {
    /// Containers by list and name.
    containers: BTreeMap<String, Container>,
    /// Containers that a condition ever named, by condition and reason.
    named: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Container {
    /// Highest restart count.
    restarts: u64,
    /// Terminations by restart count: exit code, reason and message.
    ends: BTreeSet<(u64, String)>,
    /// Restart counts at which it was running.
    ran: BTreeSet<u64>,
    /// Whether it was ever in CrashLoopBackOff.
    backed_off: bool,
    /// Reasons it was ever waiting for.
    waiting: BTreeSet<String>,
}

/// A parsed line of a container's state.
struct Line<'a> {
    container: String,
    restarts: u64,
    state: &'a str,
    last: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (list, rest) = line.split_once(' ')?;
        let (name, rest) = rest.split_once(' ')?;
        let (_, rest) = rest.split_once("restartCount=")?;
        let (restarts, rest) = rest.split_once(' ')?;
        let (state, _) = rest.split_once("lastState")?;
        Some(Self {
            container: format!("{list} {name}"),
            restarts: restarts.parse().ok()?,
            state: state.strip_prefix("state.").unwrap_or(state),
            last: rest[state.len()..]
                .strip_prefix("lastState.")
                .unwrap_or_default(),
        })
    }
}

/// A termination without the container's number, which counts observed containers only.
fn end(state: &str, field: &str) -> Option<String> {
    let state = state.strip_prefix("terminated.")?;
    let (id, rest) = state.split_once(' ')?;
    let rest = match id.strip_prefix("containerID=") {
        // Two words: `container 0`.
        Some(_) => rest.split_once(' ').map_or("", |(_, rest)| rest),
        None => state,
    };
    Some(rest.trim_end().replace(&format!("{field}."), ""))
}

impl TransientStates {
    pub(super) fn from_lines(lines: &[String]) -> Self {
        let mut states = Self::default();
        for line in lines {
            if let Some((condition, names)) = named(line) {
                states.named.entry(condition).or_default().extend(names);
            }
            let Some(line) = Line::parse(line) else {
                continue;
            };
            let container = states.containers.entry(line.container.clone()).or_default();
            container.restarts = container.restarts.max(line.restarts);
            if line.state.starts_with("running") {
                container.ran.insert(line.restarts);
            }
            container.backed_off |= line.state.contains("reason=CrashLoopBackOff");
            let ended = end(line.state, "state").map(|end| (line.restarts, end));
            // While it is waiting, the last termination is that of the current start.
            let waiting = line.state.starts_with("waiting");
            if waiting {
                container.waiting.insert(line.state.to_owned());
            }
            let before = end(line.last, "lastState");
            let last_restarts = line.restarts.checked_sub(u64::from(!waiting));
            let before = last_restarts.zip(before);
            for (start, end) in ended.into_iter().chain(before) {
                if !end.contains("reason=StartError") {
                    container.ran.insert(start);
                }
                container.ends.insert((start, end));
            }
        }
        states
    }

    /// Whether a line follows from these reports.
    pub(super) fn implies(&self, line: &str) -> bool {
        if let Some((condition, names)) = named(line) {
            let known = self.named.get(&condition);
            return known.is_some_and(|known| names.iter().all(|name| known.contains(name)));
        }
        if let Some(line) = Line::parse(line) {
            return self.container_implies(&line);
        }
        let mut regular = self.containers.iter();
        let ran = regular.any(|(name, container)| {
            name.starts_with("containerStatuses ") && !container.ran.is_empty()
        });
        let implied = [
            "phase Running - -",
            "condition Ready True - -",
            "condition ContainersReady True - -",
        ];
        ran && implied.contains(&line)
    }

    fn container_implies(&self, line: &Line<'_>) -> bool {
        let Some(known) = self.containers.get(&line.container) else {
            return false;
        };
        if line.restarts > known.restarts {
            return false;
        }
        let later = line.restarts < known.restarts;
        if line.state.starts_with("running") {
            return later || known.ran.contains(&line.restarts);
        }
        if let Some(end) = end(line.state, "state") {
            let like_any = known.ends.iter().any(|(_, known)| *known == end);
            return known.ends.contains(&(line.restarts, end)) || later && like_any;
        }
        if line.state.contains("reason=CrashLoopBackOff") {
            return known.backed_off || later;
        }
        // It fails in the same way each time, and not every time is reported.
        if known.waiting.contains(line.state) {
            return true;
        }
        // The termination also says why it could not be started.
        let message = line.state.strip_prefix("waiting.message=");
        let message =
            message.and_then(|state| state.split_once(" state.waiting.reason=RunContainerError"));
        message.is_some_and(|(message, _)| {
            known
                .ends
                .iter()
                .any(|(_, end)| end.contains(&format!("message={message}")))
        })
    }
}

/// A condition that names containers: its text and the names.
fn named(line: &str) -> Option<(String, Vec<String>)> {
    let line = line.strip_prefix("condition ")?;
    let (condition, names) = line.split_once(" status: [")?;
    let names = names.strip_suffix(']')?;
    Some((
        condition.to_owned(),
        names.split(' ').map(str::to_owned).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(restarts: u64, state: &str, last: &str) -> String {
        let ready = state.starts_with("state.running");
        format!(
            "containerStatuses main ready={ready} started={ready} restartCount={restarts} {state} {last}"
        )
    }

    fn ended(field: &str, code: u32) -> String {
        format!(
            "{field}.terminated.containerID=container 3 {field}.terminated.exitCode={code} {field}.terminated.reason=Error"
        )
    }

    #[test]
    fn transient_states_follow_from_later_reports() {
        const RUNS: &str = "state.running.startedAt=TIME";
        let states = TransientStates::from_lines(&[
            line(1, &ended("state", 3), &ended("lastState", 2)),
            "condition Ready False ContainersNotReady containers with unready status: [a main]"
                .to_owned(),
        ]);
        for (new, expected) in [
            (line(0, RUNS, "lastState={}"), true),
            (line(1, RUNS, &ended("lastState", 2)), true),
            (line(2, RUNS, &ended("lastState", 3)), false),
            (line(0, &ended("state", 2), "lastState={}"), true),
            (line(0, &ended("state", 9), "lastState={}"), false),
            (line(1, &ended("state", 2), "lastState={}"), false),
            ("condition Ready True - -".to_owned(), true),
            ("condition Ready True Because -".to_owned(), false),
            (
                "condition Ready False ContainersNotReady containers with unready status: [main]"
                    .to_owned(),
                true,
            ),
            (
                "condition Ready False ContainersNotReady containers with unready status: [b]"
                    .to_owned(),
                false,
            ),
            ("phase Failed - -".to_owned(), false),
        ] {
            assert_eq!(states.implies(&new), expected, "{new}");
        }
        let waiting = "state.waiting.reason=ContainerCreating";
        let refused = TransientStates::from_lines(&["phase Failed NodeAffinity no".to_owned()]);
        for premature in [
            line(0, waiting, "lastState={}"),
            "phase Running - -".to_owned(),
            "condition Ready True - -".to_owned(),
        ] {
            assert!(!refused.implies(&premature), "{premature}");
        }
    }
}
