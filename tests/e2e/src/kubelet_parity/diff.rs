use std::collections::BTreeSet;

use super::Timelines;
use super::expected_differences::ExpectedDifference;
use super::transient::TransientStates;

/// Lines of only one of the two: `-` the kubelet, `+` Polylet.
#[derive(Debug, Default)]
pub struct Differences {
    /// Unexpected differences.
    pub unexpected: Vec<String>,
    /// Expected differences that occurred.
    pub expected: Vec<String>,
    /// Expected differences that did not occur.
    pub unused: Vec<ExpectedDifference>,
}

/// Compares timelines and separates expected from unexpected differences.
pub fn differences(
    kubelet: &Timelines,
    polylet: &Timelines,
    expected: &[ExpectedDifference],
) -> Differences {
    let mut found = Differences::default();
    let mut used = BTreeSet::new();
    for (pod, theirs) in kubelet {
        let Some(ours) = polylet.get(pod) else {
            found.unexpected.push(format!("{pod}: not under Polylet"));
            continue;
        };
        let none = Vec::new();
        let states = TransientStates::from_lines(theirs.get("transient").unwrap_or(&none));
        let labels: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
        for at in labels {
            let theirs = theirs.get(at).unwrap_or(&none);
            let ours = ours.get(at).unwrap_or(&none);
            let mut compare = |sign: char, lines: &[String], other: &[String]| {
                for line in lines.iter().filter(|line| !other.contains(line)) {
                    // One of the two may have been too fast or too slow to report a transient state.
                    if at == "transient" && (sign == '-' || states.implies(line)) {
                        continue;
                    }
                    let line = format!("{sign} {line}");
                    let excuse = expected
                        .iter()
                        .position(|expected| expected.covers(pod, at, &line));
                    used.extend(excuse);
                    let list = match excuse {
                        Some(_) => &mut found.expected,
                        None => &mut found.unexpected,
                    };
                    list.push(format!("{pod}, {at}: {line}"));
                }
            };
            compare('-', theirs, ours);
            compare('+', ours, theirs);
        }
    }
    let unused = expected.iter().enumerate();
    let unused = unused.filter(|(at, _)| !used.contains(at));
    found.unused = unused.map(|(_, expected)| *expected).collect();
    found
}
