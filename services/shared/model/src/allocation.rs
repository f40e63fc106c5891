//! What a pod was given of the node, which is not what its manifest asks for while a resize waits.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use crate::Manifest;
use crate::quantity::Amount;

/// Requests and limits that a pod has: of itself, and of each init, sidecar and regular container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    /// Of the pod as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ResourceRequirements>,
    /// By container name.
    #[serde(default)]
    pub containers: BTreeMap<String, ResourceRequirements>,
}

/// What of a running container can be changed, in the kernel's units: zero where nothing is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    /// Thousandths of a CPU.
    #[serde(default)]
    pub cpu_request: i64,
    /// Thousandths of a CPU; the pod's where the container has none.
    #[serde(default)]
    pub cpu_limit: i64,
    /// Bytes.
    #[serde(default)]
    pub memory_request: i64,
    /// Bytes; the pod's where the container has none.
    #[serde(default)]
    pub memory_limit: i64,
}

impl Amounts {
    /// What a container of a pod asks for.
    pub fn of(pod: Option<&ResourceRequirements>, own: &ResourceRequirements) -> Self {
        let get = |list: Option<&BTreeMap<String, Quantity>>, name: &str| {
            crate::quantity::get(list, name).unwrap_or_default()
        };
        let limit = |name: &str| {
            let mine = get(own.limits.as_ref(), name);
            if mine.is_zero() {
                get(pod.and_then(|pod| pod.limits.as_ref()), name)
            } else {
                mine
            }
        };
        let request = |name: &str| get(own.requests.as_ref(), name);
        Amounts {
            cpu_request: request("cpu").millis(),
            cpu_limit: limit("cpu").millis(),
            memory_request: request("memory").value(),
            memory_limit: limit("memory").value(),
        }
    }

    /// These in place of what `list` says of them; what it does not speak of stays unsaid.
    pub fn put_into(&self, own: &mut ResourceRequirements) {
        let put = |list: &mut Option<BTreeMap<String, Quantity>>, name: &str, amount: Amount| {
            if !amount.is_zero() {
                let list = list.get_or_insert_default();
                list.insert(name.to_owned(), Quantity(amount.to_decimal()));
            } else if let Some(list) = list {
                list.remove(name);
            }
        };
        let bytes = Amount::from_units;
        put(
            &mut own.requests,
            "cpu",
            Amount::from_millis(self.cpu_request),
        );
        put(&mut own.requests, "memory", bytes(self.memory_request));
        put(&mut own.limits, "cpu", Amount::from_millis(self.cpu_limit));
        put(&mut own.limits, "memory", bytes(self.memory_limit));
    }
}

impl Allocation {
    /// What a container has by this; nothing of one that it does not know.
    pub fn amounts(&self, container: &str) -> Amounts {
        let own = self.containers.get(container);
        own.map_or_else(Amounts::default, |own| Amounts::of(self.pod.as_ref(), own))
    }

    /// What a spec asks for.
    pub fn of(spec: &PodSpec) -> Self {
        let inits = spec.init_containers.iter().flatten();
        let containers = inits.chain(&spec.containers);
        Allocation {
            pod: spec.resources.clone(),
            containers: containers
                .map(|c| (c.name.clone(), c.resources.clone().unwrap_or_default()))
                .collect(),
        }
    }

    /// Whether a spec asks for anything else. `1` and `1000m` are the same, and so are a list
    /// without entries and no list. A container that nothing was given to yet asks for nothing else.
    pub fn differs(&self, spec: &PodSpec) -> bool {
        let asked = Allocation::of(spec);
        let nothing = ResourceRequirements::default();
        let given = plain(self.pod.as_ref().unwrap_or(&nothing));
        let other = |(name, asked): (&String, &ResourceRequirements)| {
            self.containers
                .get(name)
                .is_some_and(|given| plain(given) != plain(asked))
        };
        given != plain(asked.pod.as_ref().unwrap_or(&nothing)) || asked.containers.iter().any(other)
    }

    /// The manifest with what was given in place of what it asks for. It stays the same state of
    /// the manifest, with the digest that came.
    pub fn put_into(&self, manifest: &Manifest) -> Manifest {
        manifest.with_spec(|spec| {
            spec.resources.clone_from(&self.pod);
            let inits = spec.init_containers.iter_mut().flatten();
            for container in inits.chain(&mut spec.containers) {
                if let Some(given) = self.containers.get(&container.name) {
                    container.resources = Some(given.clone());
                }
            }
        })
    }
}

/// An amount, or words that are none.
type Plain<'a> = BTreeMap<&'a str, Result<Amount, &'a str>>;

/// Requests and limits as amounts, and names of claims.
fn plain(of: &ResourceRequirements) -> (Plain<'_>, Plain<'_>, Vec<&str>) {
    fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> Plain<'_> {
        let list = list.into_iter().flatten();
        list.map(|(name, q)| (name.as_str(), Amount::parse(&q.0).map_err(|_| q.0.as_str())))
            .collect()
    }
    let claims = of.claims.iter().flatten().map(|claim| claim.name.as_str());
    (
        amounts(of.requests.as_ref()),
        amounts(of.limits.as_ref()),
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

    fn asking(cpu: &str) -> Manifest {
        manifest(json!({
            "initContainers": [{"name": "i"}],
            "containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]}))
    }

    #[test]
    fn amounts_count_and_not_their_spelling() {
        let given = Allocation::of(asking("1").spec());
        assert!(!given.differs(asking("1").spec()));
        assert!(!given.differs(asking("1000m").spec()));
        assert!(given.differs(asking("1001m").spec()));
        assert!(given.differs(asking("many").spec()));
        let pod = json!({"resources": {"limits": {}}, "initContainers": [{"name": "i"}],
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "1"}}},
                {"name": "new", "resources": {"requests": {"cpu": "1"}}}]});
        assert!(!given.differs(manifest(pod).spec()));
        let pod = json!({"resources": {"limits": {"cpu": "2"}},
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]});
        assert!(given.differs(manifest(pod).spec()));
    }

    #[test]
    fn what_was_given_takes_the_place_of_what_is_asked() {
        let (before, now) = (asking("1"), asking("2"));
        let given = Allocation::of(before.spec());
        let mixed = given.put_into(&now);
        assert!(!given.differs(mixed.spec()));
        assert_eq!(mixed.to_pod().spec.as_ref(), Some(mixed.spec()));
        assert_eq!(mixed.digest(), now.digest());
        let read = Manifest::from_json(mixed.raw()).unwrap();
        assert_eq!(read.spec(), mixed.spec());
    }

    #[test]
    fn survives_being_written_down() {
        let given = Allocation::of(asking("1").spec());
        let text = serde_json::to_string(&given).unwrap();
        assert_eq!(serde_json::from_str::<Allocation>(&text).unwrap(), given);
    }
}
