//! What the node has to give, and what pods hold of it already.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use polylet_model::Manifest;
use polylet_model::node::{self, Numbers};
use polylet_model::ports::{self, HostPort};
use polylet_model::qos::{self, QosClass};
use polylet_model::resources::ClassRequests;
use serde::{Deserialize, Serialize};

/// What a pod asks of the node. Kept with the pod once it is admitted: what was
/// given stays given, whatever the manifest says later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Requests with overhead.
    pub requests: Numbers,
    /// Host ports.
    pub ports: Vec<HostPort>,
    /// Which pods give way first.
    pub qos: QosClass,
    /// The pod's priority, where it has one.
    pub priority: Option<i32>,
    /// Static, mirror and high-priority pods.
    pub critical: bool,
}

impl Demand {
    /// What a manifest asks for.
    pub fn of(manifest: &Manifest) -> Self {
        let spec = manifest.spec();
        Demand {
            requests: node::requests(spec),
            ports: ports::of(spec),
            qos: qos::class(spec),
            priority: spec.priority,
            critical: manifest.is_critical(),
        }
    }

    /// This one, or the other where that asks for more: what a pod holds on its way from one
    /// to the other.
    pub fn or_more(&self, other: &Demand) -> Demand {
        let mut most = self.clone();
        for (name, number) in &other.requests {
            let mine = most.requests.entry(name.clone()).or_insert(*number);
            *mine = (*mine).max(*number);
        }
        most
    }

    /// How much it asks for of one resource; each pod is one of `pods`.
    pub fn of_resource(&self, name: &str) -> i64 {
        if name == node::PODS {
            return 1;
        }
        self.requests.get(name).copied().unwrap_or(0)
    }

    /// Whether this pod may take the other one's place.
    pub fn may_preempt(&self, other: &Demand) -> bool {
        (self.critical && !other.critical)
            || self
                .priority
                .zip(other.priority)
                .is_some_and(|(mine, theirs)| mine > theirs)
    }
}

/// A pod that holds something of the node.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    /// What it holds.
    pub demand: Arc<Demand>,
    /// On its way out: what it holds comes free without anybody's doing.
    pub ending: bool,
}

/// Who holds what. Sums are kept, so that a question costs nothing per pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    holders: BTreeMap<String, Holder>,
    sums: Numbers,
}

impl Ledger {
    /// Notes what a pod holds, or that it holds nothing any more. True when
    /// something came free.
    pub fn set(&mut self, uid: &str, holder: Option<Holder>) -> bool {
        if self.holders.get(uid) == holder.as_ref() {
            return false;
        }
        let before = self.holders.remove(uid);
        if let Some(before) = &before {
            self.count(&before.demand, -1);
        }
        let freed = match (&before, &holder) {
            (Some(_), None) => true,
            (Some(before), Some(now)) => {
                let mut requests = before.demand.requests.iter();
                requests.any(|(name, number)| now.demand.of_resource(name) < *number)
            }
            (None, _) => false,
        };
        if let Some(holder) = holder {
            self.count(&holder.demand, 1);
            self.holders.insert(uid.to_owned(), holder);
        }
        freed
    }

    fn count(&mut self, demand: &Demand, sign: i64) {
        for (name, number) in &demand.requests {
            let sum = self.sums.entry(name.clone()).or_default();
            *sum = sum.saturating_add(number.saturating_mul(sign));
        }
    }

    /// How much of a resource is held.
    pub fn used(&self, name: &str) -> i64 {
        if name == node::PODS {
            return i64::try_from(self.holders.len()).unwrap_or(i64::MAX);
        }
        self.sums.get(name).copied().unwrap_or(0)
    }

    /// How much of a resource all but one hold.
    pub fn used_by_others(&self, name: &str, without: &str) -> i64 {
        let own = self.holders.get(without);
        let own = own.map_or(0, |holder| holder.demand.of_resource(name));
        self.used(name).saturating_sub(own)
    }

    /// All that hold something, by uid.
    pub fn holders(&self) -> impl Iterator<Item = (&str, &Holder)> {
        self.holders
            .iter()
            .map(|(uid, holder)| (uid.as_str(), holder))
    }

    /// What the pods of each class ask for together: all but one, and another one instead of it.
    pub fn class_requests(&self, without: &str, instead: Option<&Demand>) -> ClassRequests {
        let others = self.holders().filter(|(uid, _)| *uid != without);
        let others = others.map(|(_, holder)| &*holder.demand);
        let mut asked = ClassRequests::default();
        for demand in others.chain(instead) {
            let memory = demand.of_resource("memory");
            let add = |sum: &mut i64, number: i64| *sum = sum.saturating_add(number);
            match demand.qos {
                QosClass::Guaranteed => add(&mut asked.guaranteed_memory, memory),
                QosClass::Burstable => {
                    add(&mut asked.burstable_memory, memory);
                    add(&mut asked.burstable_cpu, demand.of_resource("cpu"));
                }
                QosClass::BestEffort => {}
            }
        }
        asked
    }
}

/// How much memory and swap there is, where containers get a part of the swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of swap.
    pub swap: u64,
}

/// What the cluster says of this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum NodeObject {
    /// There is no cluster, or no such object in it: the node's own configuration counts.
    #[default]
    None,
    /// The cluster was not heard yet.
    Unheard,
    /// Its object.
    Known {
        /// Its labels.
        labels: BTreeMap<String, String>,
        /// What keeps pods away.
        taints: Vec<Taint>,
        /// What pods may ask for together, also of resources that the node does not count itself.
        allocatable: Numbers,
    },
}

/// What may be resized here; upstream's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resizes {
    /// Anything at all.
    pub pods: bool,
    /// Resources of a pod as a whole.
    pub pod_level: bool,
    /// Running init containers.
    pub inits: bool,
}

impl Default for Resizes {
    fn default() -> Self {
        Resizes {
            pods: true,
            pod_level: true,
            inits: true,
        }
    }
}

/// The node as admission sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Room {
    /// The node's name.
    pub node_name: String,
    /// Labels that it has by itself.
    pub labels: BTreeMap<String, String>,
    /// What the cluster says of it.
    pub node: NodeObject,
    /// What pods may ask for together; `None` while nobody counts.
    pub allocatable: Option<Numbers>,
    /// What one pod could have at the very most: less is allocatable, since eviction keeps some
    /// free. `None` while nobody counts.
    pub most: Option<Numbers>,
    /// What they hold of it.
    pub ledger: Ledger,
    /// Why AppArmor profiles cannot be enforced here, if they cannot.
    pub no_apparmor: Option<String>,
    /// The runtime can give a container the groups of the manifest alone.
    pub strict_groups: bool,
    /// Resources of a pod as a whole are turned off.
    pub no_pod_level_resources: bool,
    /// Gates of resizes.
    pub resizes: Resizes,
    /// Containers get a part of the node's swap, after their memory request.
    pub limited_swap: Option<Swap>,
}

impl Room {
    /// The node's labels.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        match &self.node {
            NodeObject::Known { labels, .. } => labels,
            NodeObject::None | NodeObject::Unheard => &self.labels,
        }
    }

    /// What keeps pods away.
    pub fn taints(&self) -> &[Taint] {
        match &self.node {
            NodeObject::Known { taints, .. } => taints,
            NodeObject::None | NodeObject::Unheard => &[],
        }
    }

    /// How much of a resource pods may ask for together; `None` of one that nobody counts.
    pub fn allocatable(&self, name: &str) -> Option<i64> {
        let own = self.allocatable.as_ref()?;
        let told = match &self.node {
            NodeObject::Known { allocatable, .. } => allocatable.get(name),
            NodeObject::None | NodeObject::Unheard => None,
        };
        told.or_else(|| own.get(name)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(cpu: i64, qos: QosClass) -> Holder {
        Holder {
            demand: Arc::new(Demand {
                requests: [("cpu".to_owned(), cpu), ("memory".to_owned(), 10 * cpu)].into(),
                ports: Vec::new(),
                qos,
                priority: None,
                critical: false,
            }),
            ending: false,
        }
    }

    #[test]
    fn sums_follow_the_holders() {
        let mut ledger = Ledger::default();
        assert!(!ledger.set("a", Some(holder(100, QosClass::Burstable))));
        assert!(!ledger.set("b", Some(holder(200, QosClass::Guaranteed))));
        assert!(!ledger.set("a", Some(holder(300, QosClass::Burstable))));
        assert_eq!((ledger.used("cpu"), ledger.used("pods")), (500, 2));
        let asked = |without: &str, instead: Option<&Demand>| {
            let asked = ledger.class_requests(without, instead);
            (
                asked.burstable_cpu,
                asked.burstable_memory,
                asked.guaranteed_memory,
            )
        };
        assert_eq!(asked("", None), (300, 3000, 2000));
        assert_eq!(asked("a", None), (0, 0, 2000));
        let more = holder(700, QosClass::Burstable);
        assert_eq!(asked("a", Some(&more.demand)), (700, 7000, 2000));
        assert_eq!(ledger.used_by_others("cpu", "a"), 200);
        assert_eq!(ledger.used_by_others("pods", "a"), 1);
        assert_eq!(ledger.used_by_others("cpu", "c"), 500);
        // Somebody may fit where a pod holds less than before.
        assert!(ledger.set("a", Some(holder(250, QosClass::Burstable))));
        assert!(ledger.set("a", None));
        assert!(!ledger.set("a", None));
        assert_eq!((ledger.used("cpu"), ledger.used("pods")), (200, 1));
        assert!(ledger.set("b", None));
        assert_eq!((ledger.used("cpu"), ledger.used("memory")), (0, 0));
    }
}
