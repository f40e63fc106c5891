//! The topology of a persistent volume: node affinity with the keys of its driver.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1 as api;

/// The label of a zone.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
/// The former label of a zone.
pub(super) const ZONE_BETA: &str = "failure-domain.beta.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const REGION_BETA: &str = "failure-domain.beta.kubernetes.io/region";
/// Between the zones in a label.
const DELIMITER: &str = "__";

/// What a label is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Domain {
    Zone,
    Region,
}

/// The driver's keys of the domains that it knows.
pub(super) type DriverKeys = &'static [(Domain, &'static str)];

/// Replaces the labels of domains in the node affinity by the driver's keys; without them, the labels
/// of the volume become node affinity.
pub(super) fn translate(
    affinity: &mut Option<api::VolumeNodeAffinity>,
    labels: &BTreeMap<String, String>,
    keys: DriverKeys,
) {
    let is_beta = is_beta(affinity.as_ref(), labels);
    let knows_regions = keys.iter().any(|(domain, _)| *domain == Domain::Region);
    for (domain, key) in keys {
        let label = match (domain, is_beta) {
            (Domain::Zone, false) => ZONE,
            (Domain::Zone, true) => ZONE_BETA,
            (Domain::Region, false) => REGION,
            (Domain::Region, true) => REGION_BETA,
        };
        if has_values(affinity.as_ref(), label) {
            replace(affinity, label, key);
        } else if let Some(value) = labels.get(label) {
            let values: Vec<&str> = match knows_regions {
                // As upstream, which splits the labels of the others only.
                true => vec![value],
                false => value.split(DELIMITER).collect(),
            };
            add(affinity, key, values);
        }
    }
    // A node may have the present label only.
    if !keys.is_empty() && is_beta && !knows_regions && has_values(affinity.as_ref(), REGION_BETA) {
        replace(affinity, REGION_BETA, REGION);
    }
}

/// Whether the volume has the former labels.
fn is_beta(affinity: Option<&api::VolumeNodeAffinity>, labels: &BTreeMap<String, String>) -> bool {
    let has = |label: &str| requirements(affinity).any(|found| found.key == label);
    !has(ZONE) && (has(ZONE_BETA) || (!labels.contains_key(ZONE) && labels.contains_key(ZONE_BETA)))
}

fn terms(affinity: Option<&api::VolumeNodeAffinity>) -> &[api::NodeSelectorTerm] {
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.map_or(&[], |required| required.node_selector_terms.as_slice())
}

fn requirements(
    affinity: Option<&api::VolumeNodeAffinity>,
) -> impl Iterator<Item = &api::NodeSelectorRequirement> {
    let terms = terms(affinity).iter();
    terms.flat_map(|term| term.match_expressions.iter().flatten())
}

fn has_values(affinity: Option<&api::VolumeNodeAffinity>, label: &str) -> bool {
    requirements(affinity)
        .filter(|found| found.key == label)
        .any(|found| {
            found
                .values
                .as_ref()
                .is_some_and(|values| !values.is_empty())
        })
}

fn required(affinity: &mut Option<api::VolumeNodeAffinity>) -> &mut Vec<api::NodeSelectorTerm> {
    let affinity = affinity.get_or_insert_default();
    &mut affinity
        .required
        .get_or_insert_default()
        .node_selector_terms
}

fn replace(affinity: &mut Option<api::VolumeNodeAffinity>, label: &str, key: &str) {
    let terms = required(affinity).iter_mut();
    let requirements = terms.flat_map(|term| term.match_expressions.iter_mut().flatten());
    for found in requirements.filter(|found| found.key == label) {
        key.clone_into(&mut found.key);
    }
}

fn add(affinity: &mut Option<api::VolumeNodeAffinity>, key: &str, values: Vec<&str>) {
    let values = values.into_iter().map(str::trim);
    let values: BTreeSet<&str> = values.filter(|value| !value.is_empty()).collect();
    if values.is_empty() {
        return;
    }
    let requirement = api::NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: Some(values.into_iter().map(str::to_owned).collect()),
    };
    let terms = required(affinity);
    if terms.is_empty() {
        terms.push(api::NodeSelectorTerm::default());
    }
    for term in terms {
        let expressions = term.match_expressions.get_or_insert_default();
        expressions.push(requirement.clone());
    }
}
