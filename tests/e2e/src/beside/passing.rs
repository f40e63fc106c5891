//! Whether what one says of a pod in passing follows from what the other says: a state that came and
//! went between two words of the other is told by its consequences.

use std::collections::{BTreeMap, BTreeSet};

/// What was said of one pod in passing, taken apart.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// By list and name.
    containers: BTreeMap<String, Container>,
    /// By condition and reason: the containers that it was ever for.
    named: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Container {
    /// How often it started again.
    restarts: u64,
    /// Its ends, by the start: exit code, reason and message.
    ends: BTreeSet<(u64, String)>,
    /// Starts of which it is known that it ran.
    ran: BTreeSet<u64>,
    /// Whether it ever waited out its crashes.
    backed_off: bool,
    /// What it ever waited for.
    waits: BTreeSet<String>,
}

/// A line of a container's states.
struct Line<'a> {
    container: String,
    restarts: u64,
    state: &'a str,
    last: &'a str,
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Option<Self> {
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

/// An end without the number of the container, which counts only those that were seen.
fn end(state: &str, of: &str) -> Option<String> {
    let state = state.strip_prefix("terminated.")?;
    let (id, rest) = state.split_once(' ')?;
    let rest = match id.strip_prefix("containerID=") {
        // Two words: `container 0`.
        Some(_) => rest.split_once(' ').map_or("", |(_, rest)| rest),
        None => state,
    };
    Some(rest.trim_end().replace(&format!("{of}."), ""))
}

impl Said {
    pub(super) fn of(lines: &[String]) -> Self {
        let mut said = Self::default();
        for line in lines {
            if let Some((what, names)) = named(line) {
                said.named.entry(what).or_default().extend(names);
            }
            let Some(line) = Line::of(line) else { continue };
            let container = said.containers.entry(line.container.clone()).or_default();
            container.restarts = container.restarts.max(line.restarts);
            if line.state.starts_with("running") {
                container.ran.insert(line.restarts);
            }
            container.backed_off |= line.state.contains("reason=CrashLoopBackOff");
            let ended = end(line.state, "state").map(|end| (line.restarts, end));
            // While it waits, the last end is that of the present start.
            let waits = line.state.starts_with("waiting");
            if waits {
                container.waits.insert(line.state.to_owned());
            }
            let before = end(line.last, "lastState");
            let of_last = line.restarts.checked_sub(u64::from(!waits));
            let before = of_last.zip(before);
            for (start, end) in ended.into_iter().chain(before) {
                if !end.contains("reason=StartError") {
                    container.ran.insert(start);
                }
                container.ends.insert((start, end));
            }
        }
        said
    }

    /// Whether a line says nothing that these words do not amount to.
    pub(super) fn amounts_to(&self, line: &str) -> bool {
        if let Some((what, names)) = named(line) {
            let known = self.named.get(&what);
            return known.is_some_and(|known| names.iter().all(|name| known.contains(name)));
        }
        if let Some(line) = Line::of(line) {
            return self.container_amounts_to(&line);
        }
        let mut regular = self.containers.iter();
        let ran = regular.any(|(name, container)| {
            name.starts_with("containerStatuses ") && !container.ran.is_empty()
        });
        let follows = [
            "phase Running - -",
            "condition Ready True - -",
            "condition ContainersReady True - -",
        ];
        ran && follows.contains(&line)
    }

    fn container_amounts_to(&self, line: &Line<'_>) -> bool {
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
        // It fails each time in the same way, and not each time is it told.
        if known.waits.contains(line.state) {
            return true;
        }
        // It is told why it could not be started by the end as well.
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

/// A condition that names containers: what it says, and which.
fn named(line: &str) -> Option<(String, Vec<String>)> {
    let line = line.strip_prefix("condition ")?;
    let (what, names) = line.split_once(" status: [")?;
    let names = names.strip_suffix(']')?;
    Some((
        what.to_owned(),
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

    fn ended(of: &str, code: u32) -> String {
        format!(
            "{of}.terminated.containerID=container 3 {of}.terminated.exitCode={code} {of}.terminated.reason=Error"
        )
    }

    #[test]
    fn what_came_and_went_is_told_by_what_followed() {
        const RUNS: &str = "state.running.startedAt=TIME";
        let said = Said::of(&[
            line(1, &ended("state", 3), &ended("lastState", 2)),
            "condition Ready False ContainersNotReady containers with unready status: [a main]"
                .to_owned(),
        ]);
        for (new, right) in [
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
            assert_eq!(said.amounts_to(&new), right, "{new}");
        }
        let waits = "state.waiting.reason=ContainerCreating";
        let refused = Said::of(&["phase Failed NodeAffinity no".to_owned()]);
        for early in [
            line(0, waits, "lastState={}"),
            "phase Running - -".to_owned(),
            "condition Ready True - -".to_owned(),
        ] {
            assert!(!refused.amounts_to(&early), "{early}");
        }
    }
}
