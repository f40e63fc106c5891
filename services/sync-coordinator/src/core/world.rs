//! A world for tests: a runtime, volumes and a journal that do at once what a
//! step says ([`effects`]), and forget nothing.

mod effects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use polylet_model::Manifest;
use serde_json::{Value, json};

use super::learn::{self, Outcome, Trouble};
use super::observed::{Observed, Phase};
use super::plan::{Plan, plan};
use super::room::Room;
use super::step::{Step, StepKey};
use super::view::{Journal, Node, Pod, Pressure, SeenVolume, View};
use super::wanted::Wanted;

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub(super) fn node() -> Node {
    Node {
        all_heard: true,
        pleg_fresh: true,
        runtime: Ok(()),
        network: Ok(()),
        volumes_fresh: true,
        pressure: Pressure::default(),
        room: Room::default(),
        crash_cap: Duration::from_secs(300),
    }
}

/// A manifest out of a spec.
pub(super) fn manifest(spec: Value) -> Manifest {
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"}, "spec": spec});
    let pod: ApiPod = serde_json::from_value(pod).unwrap();
    Manifest::from_pod(pod).unwrap()
}

/// A pod with main containers of these names.
pub(super) fn simple(policy: &str, names: &[&str]) -> Value {
    let containers: Vec<Value> = names
        .iter()
        .map(|n| json!({"name": n, "image": format!("img-{n}:1")}))
        .collect();
    json!({"restartPolicy": policy, "containers": containers, "terminationGracePeriodSeconds": 30})
}

/// The runtime with all that stands around it.
pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) node: Node,
    pub(super) wanted: Arc<Wanted>,
    pub(super) pod: Pod,
    pub(super) runtime: Observed,
    pub(super) volumes: Option<Vec<SeenVolume>>,
    pub(super) disk: Option<Journal>,
    pub(super) images: BTreeSet<String>,
    /// Every step that was carried out.
    pub(super) history: Vec<Step>,
    /// Hooks that were run.
    pub(super) hooks: Vec<(StepKey, String)>,
    /// Names that containers and sandboxes were made under.
    names: BTreeSet<String>,
    ids: u32,
}

impl World {
    pub(super) fn new(spec: Value) -> Self {
        let wanted = Arc::new(Wanted::of(&manifest(spec), &[]));
        let mut world = World {
            now: at(0),
            node: node(),
            pod: Pod::default(),
            wanted,
            runtime: Observed::default(),
            volumes: None,
            disk: None,
            images: BTreeSet::new(),
            history: Vec::new(),
            hooks: Vec::new(),
            names: BTreeSet::new(),
            ids: 0,
        };
        world.restart();
        world
    }

    /// The process died and came back: only facts are left.
    pub(super) fn restart(&mut self) {
        let leaving = self.pod.leaving;
        let lifecycle = std::mem::take(&mut self.pod.lifecycle);
        self.pod = Pod {
            uid: "u1".into(),
            listed: true,
            slot: true,
            wanted: Some(Arc::clone(&self.wanted)),
            leaving,
            lifecycle,
            ..Pod::default()
        };
        if let Some(journal) = &self.disk {
            self.pod.journal = journal.clone();
            self.pod.journalled = true;
        } else {
            self.pod.journal.acknowledged_at = Some(self.now);
        }
        self.hear();
        if let Some(seen) = self.volumes.clone() {
            learn::volumes_heard(&mut self.pod, 1, seen);
        }
    }

    /// The runtime is looked at.
    pub(super) fn hear(&mut self) {
        self.runtime.at = Some(self.now);
        let acts = self.pod.acts;
        let known = self.pod.base.at;
        let again = learn::refreshed(&mut self.pod, self.runtime.clone(), acts, known);
        assert!(!again, "an answer counts");
    }

    pub(super) fn pass(&mut self, seconds: i64) {
        self.now = self
            .now
            .checked_add(SignedDuration::from_secs(seconds))
            .unwrap();
    }

    pub(super) fn plan(&self) -> Plan {
        plan(&View {
            pod: &self.pod,
            node: &self.node,
            now: self.now,
        })
    }

    /// Plans and begins; the steps are now under way.
    pub(super) fn begin(&mut self) -> Vec<Step> {
        let next = self.plan();
        learn::began(&mut self.pod, &next, self.now);
        for key in &next.give_up {
            learn::ended(&mut self.pod, key, Outcome::Cancelled, self.now);
        }
        next.steps
    }

    /// Ends a step that is under way, with its effect on the world.
    pub(super) fn finish(&mut self, step: &Step) {
        let outcome = self.effect(step);
        learn::ended(&mut self.pod, &step.key(), outcome, self.now);
        if matches!(step, Step::StopContainer { .. }) {
            self.hear();
            self.pod.failures.remove(&step.key());
        }
    }

    pub(super) fn fail(&mut self, step: &Step, trouble: Trouble) {
        learn::ended(
            &mut self.pod,
            &step.key(),
            Outcome::Failed(trouble),
            self.now,
        );
    }

    /// Plans and carries out until there is nothing to do now.
    pub(super) fn settle(&mut self) {
        for _ in 0..200 {
            let steps = self.begin();
            if steps.is_empty() && self.pod.flights.is_empty() {
                return;
            }
            for step in steps {
                self.finish(&step);
            }
        }
        panic!("does not come to rest: {:?}", self.plan());
    }

    fn id(&mut self, what: &str) -> String {
        self.ids += 1;
        format!("{what}{}", self.ids)
    }

    /// The running container of a name ends, and that is heard.
    pub(super) fn ends(&mut self, name: &str, code: i32) {
        let id = self.running(name).expect("it runs");
        self.exit(&id, code);
        self.hear();
    }

    pub(super) fn running(&self, name: &str) -> Option<String> {
        let found = self
            .runtime
            .containers
            .iter()
            .find(|c| c.name == name && c.phase == Phase::Running);
        found.map(|c| c.id.clone())
    }

    pub(super) fn all_running(&self) -> Vec<&str> {
        let running = self
            .runtime
            .containers
            .iter()
            .filter(|c| c.phase == Phase::Running);
        let mut names: Vec<&str> = running.map(|c| c.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// Steps planned now, by what they are about.
    pub(super) fn planned(&self) -> Vec<StepKey> {
        self.plan().steps.iter().map(Step::key).collect()
    }

    /// Waiting reasons by container.
    pub(super) fn reasons(&self) -> BTreeMap<String, String> {
        self.plan()
            .notes
            .into_iter()
            .map(|n| (n.container, n.reason))
            .collect()
    }
}
