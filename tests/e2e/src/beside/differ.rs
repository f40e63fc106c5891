use std::collections::BTreeSet;

use super::Lives;
use super::passing::Said;
use super::right::Right;

/// What one says and the other does not: `-` the kubelet, `+` Polylet.
#[derive(Debug, Default)]
pub struct Differences {
    /// Those that nothing excuses.
    pub wrong: Vec<String>,
    /// Those that are right.
    pub right: Vec<String>,
    /// Excuses that excused nothing.
    pub idle: Vec<Right>,
}

/// Compares lives, and tells those differences that are right from the others.
pub fn differences(kubelet: &Lives, polylet: &Lives, right: &[Right]) -> Differences {
    let mut found = Differences::default();
    let mut used = BTreeSet::new();
    for (pod, theirs) in kubelet {
        let Some(ours) = polylet.get(pod) else {
            found.wrong.push(format!("{pod}: not under Polylet"));
            continue;
        };
        let none = Vec::new();
        let said = Said::of(theirs.get("passing").unwrap_or(&none));
        let labels: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
        for at in labels {
            let theirs = theirs.get(at).unwrap_or(&none);
            let ours = ours.get(at).unwrap_or(&none);
            let mut tell = |sign: char, one: &[String], other: &[String]| {
                for line in one.iter().filter(|line| !other.contains(line)) {
                    // What one of them does not say in passing it was too quick for, or too slow.
                    if at == "passing" && (sign == '-' || said.amounts_to(line)) {
                        continue;
                    }
                    let line = format!("{sign} {line}");
                    let excuse = right.iter().position(|right| right.is(pod, at, &line));
                    used.extend(excuse);
                    let of = match excuse {
                        Some(_) => &mut found.right,
                        None => &mut found.wrong,
                    };
                    of.push(format!("{pod}, {at}: {line}"));
                }
            };
            tell('-', theirs, ours);
            tell('+', ours, theirs);
        }
    }
    let idle = right.iter().enumerate();
    let idle = idle.filter(|(at, _)| !used.contains(at));
    found.idle = idle.map(|(_, right)| *right).collect();
    found
}
