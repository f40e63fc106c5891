//! A world for tests: a runtime, volumes and a journal that do at once what a
//! step says, and forget nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use polylet_model::{Manifest, hash};
use serde_json::{Value, json};

use super::learn::{self, Outcome, Trouble};
use super::observed::{Observed, Phase, SeenContainer, SeenSandbox};
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
        learn::refreshed(&mut self.pod, self.runtime.clone(), acts);
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

    /// What the step does out there, whether or not anybody hears of it.
    pub(super) fn effect(&mut self, step: &Step) -> Outcome {
        self.history.push(step.clone());
        match step.clone() {
            Step::Journal => self.disk = Some(self.pod.journal.clone()),
            Step::Decide(terminal) => {
                self.disk = Some(Journal {
                    terminal: Some(terminal),
                    ..self.pod.journal.clone()
                });
            }
            step @ (Step::Allocate { .. } | Step::Resize { .. }) => {
                self.disk = Some(self.pod.journal.after(&step));
            }
            Step::TornDown => {
                self.disk = Some(Journal {
                    torn_down: true,
                    ..self.pod.journal.clone()
                })
            }
            Step::CreateSandbox { attempt } => {
                assert!(
                    self.names.insert(format!("sandbox {attempt}")),
                    "name is reserved"
                );
                assert!(
                    !self.runtime.sandboxes.iter().any(|s| s.ready),
                    "a second sandbox"
                );
                let sandbox = SeenSandbox {
                    id: self.id("s"),
                    attempt,
                    ready: true,
                    ips: vec!["10.0.0.1".into()],
                    host_network: false,
                    created_at: Some(self.now),
                };
                self.runtime.sandboxes.insert(0, sandbox.clone());
                return Outcome::Sandbox(sandbox);
            }
            Step::PullImage { container } => {
                let image = self.wanted.container(&container).unwrap().image.clone();
                self.images.insert(image.clone());
                return Outcome::Image {
                    image_ref: format!("ref-{image}"),
                    image,
                };
            }
            Step::CreateContainer {
                container,
                attempt,
                back_off_step,
                sandbox_id,
                image_ref,
            } => {
                assert!(
                    self.names.insert(format!("{container} {attempt}")),
                    "name is reserved"
                );
                assert!(self.images.contains(image_ref.trim_start_matches("ref-")));
                if self.wanted.has_volumes {
                    assert!(self.volumes.as_ref().unwrap().iter().all(|v| v.mounted));
                }
                let spec = &self.wanted.container(&container).unwrap().spec;
                let hash = hash::container_annotation(spec);
                let made = SeenContainer {
                    id: self.id("c"),
                    sandbox_id,
                    name: container.clone(),
                    attempt,
                    phase: Phase::Created,
                    exit_code: 0,
                    reason: String::new(),
                    aborted: false,
                    hash,
                    back_off_step,
                    made_with: self
                        .pod
                        .journal
                        .allocated
                        .as_ref()
                        .map(|given| given.amounts(&container)),
                    grace: None,
                    pre_stop: None,
                    created_at: Some(self.now),
                    started_at: None,
                    finished_at: None,
                };
                self.runtime.containers.insert(0, made.clone());
                return Outcome::Created(made);
            }
            Step::StartContainer { id, container, .. } => {
                let twice = self
                    .runtime
                    .containers
                    .iter()
                    .any(|c| c.name == container && c.phase == Phase::Running);
                assert!(!twice, "{container} runs twice");
                assert!(
                    self.disk.as_ref().is_none_or(|j| j.terminal.is_none()),
                    "a terminal pod runs"
                );
                let now = self.now;
                let made = self.runtime.containers.iter_mut().find(|c| c.id == id);
                let Some(made) = made.filter(|c| c.phase == Phase::Created) else {
                    return Outcome::Failed(Trouble::default());
                };
                made.phase = Phase::Running;
                made.started_at = Some(now);
            }
            Step::PostStart { id, .. } | Step::PreStop { id, .. } => {
                self.hooks.push((step.key(), id));
            }
            Step::StopContainer { id, .. } => self.exit(&id, 137),
            Step::StopSandbox { id } => {
                assert!(
                    !self
                        .runtime
                        .containers
                        .iter()
                        .any(|c| c.sandbox_id == id && c.may_run())
                );
                self.runtime
                    .sandboxes
                    .iter_mut()
                    .filter(|s| s.id == id)
                    .for_each(|s| s.ready = false);
            }
            Step::RemoveContainer { id, .. } | Step::ResetContainer { id, .. } => {
                assert!(
                    !self
                        .runtime
                        .container(&id)
                        .is_some_and(SeenContainer::may_run)
                );
                self.runtime.containers.retain(|c| c.id != id);
            }
            Step::RemoveSandbox { id } => {
                assert!(!self.runtime.containers.iter().any(|c| c.sandbox_id == id));
                self.runtime.sandboxes.retain(|s| s.id != id);
            }
            Step::ApplyVolumes => {
                let mounted = SeenVolume {
                    name: "data".into(),
                    mounted: true,
                    gone: false,
                    host_path: "/v".into(),
                    message: String::new(),
                };
                self.volumes = Some(vec![mounted.clone()]);
                let digest = self.wanted.digest.clone();
                return Outcome::Declared {
                    digest,
                    sequence: 1,
                    seen: vec![mounted],
                };
            }
            Step::ReleaseVolumes => {
                assert!(
                    !self.runtime.containers.iter().any(SeenContainer::may_run),
                    "unmounted under a container"
                );
                self.volumes = None;
                self.pod.volumes.seen = None;
            }
            Step::EnsureCgroup | Step::RemoveCgroup | Step::RemoveFiles => {}
        }
        Outcome::Done
    }

    /// A container ends.
    pub(super) fn exit(&mut self, id: &str, code: i32) {
        let now = self.now;
        for container in self
            .runtime
            .containers
            .iter_mut()
            .filter(|c| c.id == id && c.phase != Phase::Exited)
        {
            container.phase = Phase::Exited;
            container.exit_code = code;
            container.finished_at = Some(now);
            container.reason = if code == 0 { "Completed" } else { "Error" }.into();
        }
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
