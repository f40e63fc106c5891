//! A pod's quality of service class.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use serde::{Deserialize, Serialize};

use crate::quantity::{self, Amount};

/// Which pods give way when the node runs short, and by how much each is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum QosClass {
    /// Requests equal limits for all it uses.
    Guaranteed,
    /// Anything between.
    Burstable,
    /// No requests and no limits.
    BestEffort,
}

impl QosClass {
    /// The class as the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// Reads the API's word.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Guaranteed, Self::Burstable, Self::BestEffort]
            .into_iter()
            .find(|class| class.as_str() == text)
    }
}

/// The resources that decide.
const NAMES: [&str; 2] = ["cpu", "memory"];

/// Computes the class. A pod that says something at pod level is judged by that alone;
/// otherwise by regular and init containers, and never by ephemeral ones.
pub fn class(spec: &PodSpec) -> QosClass {
    let pod_level = spec
        .resources
        .as_ref()
        .filter(|_| crate::resources::has_pod_level(spec));
    let judged: Vec<Option<&ResourceRequirements>> = match pod_level {
        Some(own) => vec![Some(own)],
        None => {
            let init = spec.init_containers.iter().flatten();
            spec.containers
                .iter()
                .chain(init)
                .map(|container| container.resources.as_ref())
                .collect()
        }
    };
    let (mut requests, mut limits) = (BTreeMap::new(), BTreeMap::new());
    let mut all_limited = true;
    for resources in judged {
        add(&mut requests, resources.and_then(|r| r.requests.as_ref()));
        let limited = add(&mut limits, resources.and_then(|r| r.limits.as_ref()));
        all_limited &= limited == NAMES.len();
    }
    if requests.is_empty() && limits.is_empty() {
        QosClass::BestEffort
    } else if all_limited
        && requests.len() == limits.len()
        && requests.iter().all(|(k, v)| limits.get(k) == Some(v))
    {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

/// Adds what counts and says how much of it there was.
fn add(
    sum: &mut BTreeMap<&'static str, Amount>,
    list: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> usize {
    let mut found = 0;
    for name in NAMES {
        if let Some(amount) = quantity::get(list, name).filter(|amount| amount.is_positive()) {
            let entry = sum.entry(name).or_default();
            *entry = *entry + amount;
            found += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(spec: Value) -> QosClass {
        class(&serde_json::from_value(spec).unwrap())
    }

    fn with(resources: &[Value]) -> QosClass {
        let containers: Vec<_> = resources
            .iter()
            .map(|r| json!({"name": "c", "resources": r}))
            .collect();
        of(json!({"containers": containers}))
    }

    #[test]
    fn upstreams_cases() {
        use QosClass::*;
        let same = json!({"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "100m", "memory": "1024Mi"}});
        let storage = json!({"requests": {"ephemeral-storage": "1Gi"}});
        for (name, resources, expected) in [
            ("same", vec![same.clone()], Guaranteed),
            ("two the same", vec![same.clone(), same.clone()], Guaranteed),
            ("one has nothing", vec![same.clone(), json!({})], Burstable),
            ("nothing", vec![json!({})], BestEffort),
            ("only others", vec![storage.clone()], BestEffort),
            (
                "others beside",
                vec![
                    json!({"requests": {"cpu": "1", "memory": "1", "x/y": "1"}, "limits": {"cpu": "1", "memory": "1", "x/y": "2"}}),
                ],
                Guaranteed,
            ),
            (
                "only cpu",
                vec![json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}})],
                Burstable,
            ),
            (
                "zero counts for nothing",
                vec![json!({"requests": {"cpu": "0"}, "limits": {"memory": "0"}})],
                BestEffort,
            ),
            (
                "limits without requests",
                vec![json!({"limits": {"cpu": "1", "memory": "1"}})],
                Burstable,
            ),
            (
                "less asked than allowed",
                vec![
                    json!({"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "2", "memory": "1"}}),
                ],
                Burstable,
            ),
        ] {
            assert_eq!(with(&resources), expected, "{name}");
        }
    }

    #[test]
    fn init_containers_count_and_pod_level_decides_alone() {
        let same =
            json!({"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1", "memory": "1"}});
        assert_eq!(
            of(
                json!({"containers": [{"name": "a", "resources": same}], "initContainers": [{"name": "i"}]})
            ),
            QosClass::Burstable
        );
        assert_eq!(
            of(json!({"containers": [{"name": "a"}], "resources": same})),
            QosClass::Guaranteed
        );
        assert_eq!(
            of(
                json!({"containers": [{"name": "a", "resources": same}], "resources": {"requests": {"cpu": "1"}}})
            ),
            QosClass::Burstable
        );
    }
}
