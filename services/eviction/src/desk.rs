//! What eviction knows and tells: everything of the one task but its samples and its files.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::cause;
use polylet_model::pod::Manifest;
use polylet_watch::{PressureKeyOwned, Store, Update};
use polylet_wire::eviction::v1::{self as wire, Pressure};
use polylet_wire::pleg::v1::PodState;
use polylet_wire::podconfig::v1::Pod;
use polylet_wire::time;

use crate::convert;
use crate::core::facts::{Pods, Wanted};
use crate::core::pressure::{Condition, Pressure as Pressed};
use crate::core::rank::Candidate;
use crate::core::round::{self, Act, Rules, Standing, Verdict};
use crate::core::signal::Levels;
use crate::core::threshold::Threshold;
use crate::orders::Orders;

/// How long an order may take before another pod is chosen, as upstream waits.
const ORDER_PATIENCE: Duration = Duration::from_secs(30);

/// The state of the one task.
pub struct Desk {
    pub(crate) rules: Rules,
    cgroup_root: String,
    evict_static: bool,
    pub(crate) pods: Pods,
    pub(crate) heard_states: bool,
    standing: Standing,
    pub(crate) orders: Orders,
    store: Store<PressureKeyOwned, Pressure>,
}

impl Desk {
    /// Has heard nothing yet, and tells of orders once the node was looked at.
    pub fn new(rules: Rules, orders: Orders, store: Store<PressureKeyOwned, Pressure>) -> Self {
        Desk {
            rules,
            cgroup_root: String::new(),
            evict_static: false,
            pods: Pods::default(),
            heard_states: false,
            standing: Standing::default(),
            orders,
            store,
        }
    }

    /// As the configuration has it.
    pub(crate) fn configured(mut self, cgroup_root: &str, evict_static: bool) -> Self {
        cgroup_root.clone_into(&mut self.cgroup_root);
        self.evict_static = evict_static;
        self
    }

    /// Conditions stand as a former life left them.
    pub(crate) fn standing(mut self, conditions: BTreeMap<Condition, Pressed>) -> Self {
        self.standing.conditions = conditions;
        self
    }

    /// The conditions as they stand.
    pub(crate) fn conditions(&self) -> &BTreeMap<Condition, Pressed> {
        &self.standing.conditions
    }

    /// A source says what should run. Gives a pod that counts from now on.
    pub fn pod(&mut self, update: Update<String, Pod>) -> Option<Manifest> {
        match update {
            Update::Upsert(uid, pod) => match Manifest::from_json(&pod.manifest) {
                Ok(manifest) => {
                    let wanted = convert::wanted(&manifest, &self.cgroup_root, self.evict_static);
                    let known = self.pods.wanted.insert(uid, wanted).is_some();
                    (!known).then_some(manifest)
                }
                Err(error) => {
                    let error = polylet_kit::report(&error);
                    tracing::warn!(pod = uid, error, "a pod that cannot be read");
                    None
                }
            },
            Update::Remove(uid) => {
                self.pods.wanted.remove(&uid);
                None
            }
            Update::Synced | Update::Stale(_) => None,
        }
    }

    /// The runtime's state of a pod.
    pub fn state(&mut self, update: Update<String, PodState>) {
        match update {
            Update::Upsert(uid, state) => {
                self.pods.held.insert(uid.clone(), convert::held(&state));
                self.withdraw_if_gone(&uid);
            }
            Update::Remove(uid) => {
                self.pods.held.remove(&uid);
                self.withdraw_if_gone(&uid);
            }
            Update::Synced => {
                self.heard_states = true;
                let ordered: Vec<String> = self.orders.iter().map(|(uid, _)| uid.clone()).collect();
                for uid in ordered {
                    self.withdraw_if_gone(&uid);
                }
            }
            Update::Stale(_) => self.heard_states = false,
        }
    }

    /// An order has done its work when nothing of the pod runs any more.
    fn withdraw_if_gone(&mut self, uid: &str) {
        if self.heard_states && !self.pods.is_running(uid) {
            self.orders.withdraw(uid);
            self.store.remove(&PressureKeyOwned::Pod(uid.to_owned()));
        }
    }

    /// Judges a sample and tells the conditions. `reclaimed` says that image-gc has just done what
    /// it could.
    pub fn observe(&mut self, levels: &Levels, reclaimed: bool, now: Timestamp) -> Act {
        let (standing, act) = round::observe(&self.rules, &self.standing, levels, reclaimed, now);
        for (condition, pressure) in &standing.conditions {
            let key = PressureKeyOwned::Resource(convert::resource(*condition).into());
            let item = convert::condition(*condition, *pressure);
            if self.store.upsert(key, item) && pressure.under {
                let reason = condition.reason(true);
                tracing::warn!(reason, "the node is under pressure");
            }
        }
        self.standing = standing;
        if !self.store.is_whole() {
            for (uid, order) in self.orders.iter() {
                let key = PressureKeyOwned::Pod(uid.clone());
                self.store.upsert(key, fact(order));
            }
            self.store.mark_whole();
        }
        act
    }

    /// Whether a pod may be ordered away now: the last one has left, and what runs is known.
    pub fn may_evict(&self, now: Timestamp) -> bool {
        let leaving = |(_, order): (&String, &wire::Order)| {
            let decided = time::from_wire_opt(order.decided_at.as_ref()).unwrap_or(now);
            let grace = Duration::from_secs(order.grace_seconds.into());
            let waited = Duration::try_from(now.duration_since(decided)).unwrap_or(Duration::ZERO);
            waited < ORDER_PATIENCE.max(grace)
        };
        self.heard_states && !self.orders.iter().any(leaving)
    }

    /// Running pods, without what they use: as when nothing could be sampled.
    pub fn unmeasured(&self) -> Vec<Candidate> {
        let running = self.pods.running();
        let known = running.filter_map(|(uid, _)| Some((uid, self.pods.wanted.get(uid)?)));
        let one = |(uid, wanted): (&String, &Wanted)| Candidate {
            uid: uid.clone(),
            namespace: wanted.namespace.clone(),
            name: wanted.name.clone(),
            priority: wanted.priority,
            critical: wanted.critical,
            termination_grace_seconds: wanted.termination_grace_seconds,
            ..Candidate::default()
        };
        known.map(one).collect()
    }

    /// Orders off the node the first of these by rank. Says whether an order was given.
    pub fn evict(
        &mut self,
        threshold: &Threshold,
        levels: &Levels,
        candidates: Vec<Candidate>,
        now: Timestamp,
    ) -> bool {
        let ordered = |uid: &String| self.orders.iter().any(|(known, _)| known == uid);
        let candidates: Vec<_> = candidates
            .into_iter()
            .filter(|pod| !ordered(&pod.uid))
            .collect();
        let Some(verdict) = round::evict(&self.rules, threshold, levels, &candidates) else {
            tracing::warn!(signal = ?threshold.signal, "the node is short and no pod may be evicted");
            return false;
        };
        self.give(verdict, now)
    }

    /// Gives an order, once it is kept. Says whether it stands.
    pub(crate) fn give(&mut self, verdict: Verdict, now: Timestamp) -> bool {
        let span = tracing::info_span!(
            "eviction.order",
            k8s.pod.uid = verdict.uid,
            k8s.pod.name = verdict.name,
            k8s.namespace.name = verdict.namespace,
        );
        cause::new_trace(&span);
        let order = convert::order(&verdict, now, Some(cause::of_span(&span)));
        if let Err(error) = self.orders.add(&verdict.uid, order.clone()) {
            tracing::error!(
                error = polylet_kit::report(&error),
                "an order that cannot be kept is not given"
            );
            return false;
        }
        tracing::warn!(
            pod = verdict.name,
            namespace = verdict.namespace,
            message = verdict.message,
            "evicting"
        );
        self.store
            .upsert(PressureKeyOwned::Pod(verdict.uid), fact(&order));
        true
    }
}

fn fact(order: &wire::Order) -> Pressure {
    Pressure {
        fact: Some(wire::pressure::Fact::Order(order.clone())),
    }
}
