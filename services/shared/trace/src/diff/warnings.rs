//! What else may be the cause of a difference.

use std::collections::{BTreeMap, BTreeSet};

use super::comparison::{DiffOptions, VersionChange};
use super::groups::TraceGroup;
use crate::summary::{NODE, TraceSummary};

/// What has one version in one set and another one in the other: services, the container runtime, the kernel.
pub(super) fn version_changes(a: &[TraceSummary], b: &[TraceSummary]) -> Vec<VersionChange> {
    let (of_a, of_b) = (versions(a), versions(b));
    let only = |versions: Option<&BTreeSet<&str>>| {
        let versions = versions.filter(|versions| versions.len() == 1)?;
        versions.first().map(|version| (*version).to_owned())
    };
    let compared = of_a.iter().filter(|(service, _)| **service != NODE);
    let services = compared.filter_map(|(service, versions)| {
        let (from, to) = (only(Some(versions))?, only(of_b.get(service))?);
        (from != to).then(|| VersionChange {
            service: (*service).to_owned(),
            from,
            to,
        })
    });
    services.collect()
}

fn versions(summaries: &[TraceSummary]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (service, version) in summaries.iter().flat_map(|summary| &summary.versions) {
        found.entry(service).or_default().insert(version);
    }
    found
}

/// A sentence for each reason, without its full stop.
pub(super) fn warnings(
    a: &[TraceSummary],
    b: &[TraceSummary],
    groups: &[TraceGroup<'_>],
    options: &DiffOptions,
) -> Vec<String> {
    let [of_a, of_b] = &options.names;
    let mut warnings = Vec::new();
    let ids: BTreeSet<_> = a.iter().map(|summary| summary.id).collect();
    let shared = b.iter().filter(|summary| ids.contains(&summary.id)).count();
    if shared > 0 {
        warnings.push(format!("{shared} traces are in both sets"));
    }
    for (side, source, other) in [(0, of_a, of_b), (1, of_b, of_a)] {
        let alone = groups.iter().filter(|group| !group.is_common());
        let alone: usize = alone
            .filter_map(|group| group.traces.get(side).map(Vec::len))
            .sum();
        if alone > 0 {
            warnings.push(format!(
                "{alone} traces of {source} are not compared; {other} has none of their shape and outcome"
            ));
        }
    }
    warnings.extend(periods(a, b, options));
    if let [Some(a), Some(b)] = [a, b].map(|set| versions(set).remove(NODE))
        && a != b
    {
        let list = |nodes: BTreeSet<&str>| nodes.into_iter().collect::<Vec<_>>().join(", ");
        warnings.push(format!("the node differs: {} and {}", list(a), list(b)));
    }
    for (source, summaries) in [(of_a, a), (of_b, b)] {
        for (service, versions) in versions(summaries) {
            if versions.len() > 1 {
                let versions: Vec<_> = versions.into_iter().collect();
                warnings.push(format!(
                    "{source} has several versions of {service}: {}",
                    versions.join(", ")
                ));
            }
        }
    }
    warnings
}

/// Sets that were recorded one after the other also differ in what else changed meanwhile.
fn periods(a: &[TraceSummary], b: &[TraceSummary], options: &DiffOptions) -> Option<String> {
    let starts = |summaries: &[TraceSummary], set: usize| -> Vec<_> {
        let starts = summaries.iter();
        starts.map(|summary| (summary.start, set)).collect()
    };
    let mut order = starts(a, 0);
    order.extend(starts(b, 1));
    order.sort_unstable();
    // A, B and A again is the least that shows a drift.
    let periods = order.chunk_by(|one, other| one.1 == other.1).count();
    let has_several = a.len().min(b.len()) > 1;
    let [a, b] = &options.names;
    (has_several && periods < 3).then(|| {
        format!(
            "the periods of {a} and {b} do not interleave; what else changed in between counts, too"
        )
    })
}
