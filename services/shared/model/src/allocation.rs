//! The resources allocated to a pod: other than its manifest requests while a resize is pending.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use crate::Manifest;
use crate::quantity::Amount;

/// The allocated requests and limits of a pod and of each init, sidecar and regular container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodAllocation {
    /// Pod-level resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ResourceRequirements>,
    /// By container name; boxed, as a node of the map has room for eleven.
    #[serde(default)]
    pub containers: BTreeMap<String, Box<ResourceRequirements>>,
}

/// The resources of a running container that can be resized, in the kernel's units; zero where unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResizableResources {
    /// Thousandths of a CPU.
    #[serde(default)]
    pub cpu_request: i64,
    /// Thousandths of a CPU; the pod's where the container has none.
    #[serde(default)]
    pub cpu_limit: i64,
    /// Memory in bytes.
    #[serde(default)]
    pub memory_request: i64,
    /// Bytes; the pod's where the container has none.
    #[serde(default)]
    pub memory_limit: i64,
}

impl ResizableResources {
    /// The resources of a container. Limits that it does not set are the pod's.
    pub fn new(pod: Option<&ResourceRequirements>, own: &ResourceRequirements) -> Self {
        let get = |list: Option<&BTreeMap<String, Quantity>>, name: &str| {
            crate::quantity::parse_entry(list, name).unwrap_or_default()
        };
        let limit = |name: &str| {
            let own_limit = get(own.limits.as_ref(), name);
            if own_limit.is_zero() {
                get(pod.and_then(|pod| pod.limits.as_ref()), name)
            } else {
                own_limit
            }
        };
        let request = |name: &str| get(own.requests.as_ref(), name);
        ResizableResources {
            cpu_request: request("cpu").millis(),
            cpu_limit: limit("cpu").millis(),
            memory_request: request("memory").value(),
            memory_limit: limit("memory").value(),
        }
    }

    /// Replaces CPU and memory in `own`, and removes those that are zero here.
    pub fn apply_to(&self, own: &mut ResourceRequirements) {
        let set = |list: &mut Option<BTreeMap<String, Quantity>>, name: &str, amount: Amount| {
            if !amount.is_zero() {
                let list = list.get_or_insert_default();
                list.insert(name.to_owned(), Quantity(amount.to_decimal()));
            } else if let Some(list) = list {
                list.remove(name);
            }
        };
        let bytes = Amount::from_units;
        set(
            &mut own.requests,
            "cpu",
            Amount::from_millis(self.cpu_request),
        );
        set(&mut own.requests, "memory", bytes(self.memory_request));
        set(&mut own.limits, "cpu", Amount::from_millis(self.cpu_limit));
        set(&mut own.limits, "memory", bytes(self.memory_limit));
    }
}

impl PodAllocation {
    /// The resources allocated to a container; zero for an unknown one.
    pub fn container_resources(&self, container: &str) -> ResizableResources {
        let own = self.containers.get(container);
        own.map_or_else(ResizableResources::default, |own| {
            ResizableResources::new(self.pod.as_ref(), own)
        })
    }

    /// The resources that a spec requests.
    pub fn from_spec(spec: &PodSpec) -> Self {
        let inits = spec.init_containers.iter().flatten();
        let containers = inits.chain(&spec.containers);
        PodAllocation {
            pod: spec.resources.clone(),
            containers: containers
                .map(|c| {
                    (
                        c.name.clone(),
                        Box::new(c.resources.clone().unwrap_or_default()),
                    )
                })
                .collect(),
        }
    }

    /// Whether other resources are requested. Quantities are compared by value (`1` equals `1000m`),
    /// and an empty list equals none. A container without an allocation does not differ.
    pub fn differs_from(&self, requested: &PodAllocation) -> bool {
        let empty = ResourceRequirements::default();
        let allocated = normalize(self.pod.as_ref().unwrap_or(&empty));
        let differs = |name: &String, requested: &ResourceRequirements| {
            self.containers
                .get(name)
                .is_some_and(|allocated| normalize(allocated) != normalize(requested))
        };
        allocated != normalize(requested.pod.as_ref().unwrap_or(&empty))
            || requested
                .containers
                .iter()
                .any(|(name, own)| differs(name, own))
    }

    /// The manifest with the allocated resources in place of the requested ones. Its digest stays that
    /// of the original.
    pub fn apply_to(&self, manifest: &Manifest) -> Manifest {
        manifest.with_spec(|spec| {
            spec.resources.clone_from(&self.pod);
            let inits = spec.init_containers.iter_mut().flatten();
            for container in inits.chain(&mut spec.containers) {
                if let Some(allocated) = self.containers.get(&container.name) {
                    container.resources = Some(ResourceRequirements::clone(allocated));
                }
            }
        })
    }
}

/// Parsed quantities; invalid ones as text.
type ParsedQuantities<'a> = BTreeMap<&'a str, Result<Amount, &'a str>>;

/// Requests, limits and names of claims, for comparison.
fn normalize(
    resources: &ResourceRequirements,
) -> (ParsedQuantities<'_>, ParsedQuantities<'_>, Vec<&str>) {
    fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> ParsedQuantities<'_> {
        let list = list.into_iter().flatten();
        list.map(|(name, q)| (name.as_str(), Amount::parse(&q.0).map_err(|_| q.0.as_str())))
            .collect()
    }
    let claims = resources
        .claims
        .iter()
        .flatten()
        .map(|claim| claim.name.as_str());
    (
        amounts(resources.requests.as_ref()),
        amounts(resources.limits.as_ref()),
        claims.collect(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn manifest(spec: Value) -> Manifest {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {"name": "web", "namespace": "default", "uid": "u1"}});
        Manifest::from_json(pod.to_string().as_bytes()).unwrap()
    }

    fn requesting(cpu: &str) -> Manifest {
        manifest(json!({
            "initContainers": [{"name": "i"}],
            "containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]}))
    }

    #[test]
    fn quantities_are_compared_by_value() {
        let allocated = PodAllocation::from_spec(requesting("1").spec());
        assert!(!allocated.differs_from(&PodAllocation::from_spec(requesting("1").spec())));
        assert!(!allocated.differs_from(&PodAllocation::from_spec(requesting("1000m").spec())));
        assert!(allocated.differs_from(&PodAllocation::from_spec(requesting("1001m").spec())));
        assert!(allocated.differs_from(&PodAllocation::from_spec(requesting("many").spec())));
        let pod = json!({"resources": {"limits": {}}, "initContainers": [{"name": "i"}],
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "1"}}},
                {"name": "new", "resources": {"requests": {"cpu": "1"}}}]});
        assert!(!allocated.differs_from(&PodAllocation::from_spec(manifest(pod).spec())));
        let pod = json!({"resources": {"limits": {"cpu": "2"}},
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]});
        assert!(allocated.differs_from(&PodAllocation::from_spec(manifest(pod).spec())));
    }

    #[test]
    fn allocated_resources_replace_requested_ones() {
        let (old, new) = (requesting("1"), requesting("2"));
        let allocated = PodAllocation::from_spec(old.spec());
        let mixed = allocated.apply_to(&new);
        assert!(!allocated.differs_from(&PodAllocation::from_spec(mixed.spec())));
        assert_eq!(mixed.to_pod().spec.as_ref(), Some(mixed.spec()));
        assert_eq!(mixed.digest(), new.digest());
        let read = Manifest::from_json(mixed.raw()).unwrap();
        assert_eq!(read.spec(), mixed.spec());
    }

    #[test]
    fn serialization_round_trip() {
        let allocated = PodAllocation::from_spec(requesting("1").spec());
        let text = serde_json::to_string(&allocated).unwrap();
        assert_eq!(
            serde_json::from_str::<PodAllocation>(&text).unwrap(),
            allocated
        );
    }
}
