//! A pod's quality of service class.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use serde::{Deserialize, Serialize};

use crate::quantity::{self, Amount};

/// A pod's QoS class: which pods are evicted first, and how their resources are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum QosClass {
    /// Requests equal limits for CPU and memory in all containers.
    Guaranteed,
    /// Neither of the others.
    Burstable,
    /// No requests and no limits.
    BestEffort,
}

impl QosClass {
    /// The class in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// Parses the class in the API.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Guaranteed, Self::Burstable, Self::BestEffort]
            .into_iter()
            .find(|class| class.as_str() == text)
    }
}

/// The resources that determine the class.
const NAMES: [&str; 2] = ["cpu", "memory"];

/// Computes the class: from pod-level resources if the pod has any, and otherwise from its regular and
/// init containers. Ephemeral containers do not count.
pub fn class(spec: &PodSpec) -> QosClass {
    let pod_level = spec
        .resources
        .as_ref()
        .filter(|_| crate::pod_level::has_pod_level(spec));
    let lists: Vec<Option<&ResourceRequirements>> = match pod_level {
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
    for resources in lists {
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

/// Adds the positive amounts of CPU and memory, and returns how many there were.
fn add(
    sum: &mut BTreeMap<&'static str, Amount>,
    list: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> usize {
    let mut found = 0;
    for name in NAMES {
        if let Some(amount) =
            quantity::parse_entry(list, name).filter(|amount| amount.is_positive())
        {
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

    fn class_of(spec: Value) -> QosClass {
        class(&serde_json::from_value(spec).unwrap())
    }

    fn class_of_containers(resources: &[Value]) -> QosClass {
        let containers: Vec<_> = resources
            .iter()
            .map(|r| json!({"name": "c", "resources": r}))
            .collect();
        class_of(json!({"containers": containers}))
    }

    #[test]
    fn classes_as_upstream() {
        use QosClass::*;
        let same = json!({"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "100m", "memory": "1024Mi"}});
        let storage = json!({"requests": {"ephemeral-storage": "1Gi"}});
        for (name, resources, expected) in [
            ("same", vec![same.clone()], Guaranteed),
            ("two the same", vec![same.clone(), same.clone()], Guaranteed),
            (
                "one without resources",
                vec![same.clone(), json!({})],
                Burstable,
            ),
            ("nothing", vec![json!({})], BestEffort),
            ("only other resources", vec![storage.clone()], BestEffort),
            (
                "other resources in addition",
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
                "zero amounts",
                vec![json!({"requests": {"cpu": "0"}, "limits": {"memory": "0"}})],
                BestEffort,
            ),
            (
                "limits without requests",
                vec![json!({"limits": {"cpu": "1", "memory": "1"}})],
                Burstable,
            ),
            (
                "requests below limits",
                vec![
                    json!({"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "2", "memory": "1"}}),
                ],
                Burstable,
            ),
        ] {
            assert_eq!(class_of_containers(&resources), expected, "{name}");
        }
    }

    #[test]
    fn init_containers_count_and_pod_level_resources_take_precedence() {
        let same =
            json!({"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1", "memory": "1"}});
        assert_eq!(
            class_of(
                json!({"containers": [{"name": "a", "resources": same}], "initContainers": [{"name": "i"}]})
            ),
            QosClass::Burstable
        );
        assert_eq!(
            class_of(json!({"containers": [{"name": "a"}], "resources": same})),
            QosClass::Guaranteed
        );
        assert_eq!(
            class_of(
                json!({"containers": [{"name": "a", "resources": same}], "resources": {"requests": {"cpu": "1"}}})
            ),
            QosClass::Burstable
        );
    }
}
