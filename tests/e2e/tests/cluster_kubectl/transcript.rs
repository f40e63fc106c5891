//! What kubectl printed, command by command.

use polylet_e2e::kubelet_parity::patterns::matches;

/// A pattern of `command: line` (`*` matches any text) that only one node may have, and the reason.
pub(crate) type ExpectedLine = (&'static str, &'static str);

/// The commands of a session with their output, in order.
#[derive(Debug, Default)]
pub(crate) struct Transcript(Vec<(String, Vec<String>)>);

impl Transcript {
    pub(crate) fn push(&mut self, command: String, lines: Vec<String>) {
        self.0.push((command, lines));
    }

    /// The number of commands.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// All of it, to read.
    pub(crate) fn text(&self) -> String {
        let entry = |(command, lines): &(String, Vec<String>)| {
            let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
            format!("$ {command}\n{lines}")
        };
        self.0.iter().map(entry).collect()
    }
}

/// Lines that only one of the two printed, or printed elsewhere.
pub(crate) fn differences(
    kubelet: &Transcript,
    polylet: &Transcript,
    expected: &[ExpectedLine],
) -> Vec<String> {
    let mut found = Vec::new();
    if kubelet.len() != polylet.len() {
        found.push(format!("{} and {} commands", kubelet.len(), polylet.len()));
    }
    for ((command, theirs), (own, ours)) in kubelet.0.iter().zip(&polylet.0) {
        if command != own {
            found.push(format!("$ {command} and $ {own}"));
            continue;
        }
        let left = |line: &&String| {
            let line = format!("{command}: {line}");
            !expected.iter().any(|(pattern, _)| matches(&line, pattern))
        };
        let theirs: Vec<&String> = theirs.iter().filter(left).collect();
        let ours: Vec<&String> = ours.iter().filter(left).collect();
        if theirs == ours {
            continue;
        }
        found.push(format!("$ {command}"));
        let before = found.len();
        found.extend(only(&theirs, &ours).map(|line| format!("  kubelet: {line}")));
        found.extend(only(&ours, &theirs).map(|line| format!("  polylet: {line}")));
        if found.len() == before {
            found.push(format!("  in another order: {theirs:#?} {ours:#?}"));
        }
    }
    found
}

/// Lines that one has more often than the other.
fn only<'a>(one: &[&'a String], other: &[&'a String]) -> impl Iterator<Item = &'a String> {
    let mut other = other.to_vec();
    one.iter().copied().filter(move |line| {
        let at = other.iter().position(|found| found == line);
        at.map(|at| other.swap_remove(at)).is_none()
    })
}

#[test]
fn differences_are_lines_of_one_side_and_other_orders() {
    let transcript = |lines: &[&str]| {
        let mut transcript = Transcript::default();
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        transcript.push("get".to_owned(), lines);
        transcript
    };
    let (one, other) = (transcript(&["a", "b", "b"]), transcript(&["b", "a", "c"]));
    assert!(differences(&one, &one, &[]).is_empty());
    let found = differences(&one, &other, &[]);
    assert_eq!(found, ["$ get", "  kubelet: b", "  polylet: c"]);
    assert!(differences(&one, &other, &[("get: *", "all")]).is_empty());
    let found = differences(&one, &transcript(&["b", "b", "a"]), &[]);
    assert!(found[1].contains("another order"), "{found:?}");
}
