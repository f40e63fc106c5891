//! A node with one pod for tests of decisions: a runtime, volumes and a disk that carry out steps at
//! once ([`effects`]).

mod effects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use polylet_model::Manifest;
use serde_json::{Value, json};

use crate::core::checkpoint::PodCheckpoint;
use crate::core::devices::DeviceAdmission;
use crate::core::node_resources::NodeResources;
use crate::core::plan::Plan;
use crate::core::pod_spec::PodSpecView;
use crate::core::runtime_state::{ContainerState, PodRuntimeState};
use crate::core::step::{Step, StepFailure, StepKey, StepOutcome};
use crate::core::view::{NodePressure, NodeState, PodSyncStatus, View};
use crate::core::volume_state::ObservedVolume;
use crate::core::{apply_result, pod_worker};

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub(super) fn node() -> NodeState {
    NodeState {
        all_synced: true,
        pleg_synced: true,
        runtime: Ok(()),
        network: Ok(()),
        volumes_synced: true,
        pressure: NodePressure::default(),
        container_reclaim: None,
        resources: NodeResources::default(),
        max_restart_backoff: Duration::from_secs(300),
    }
}

/// A manifest with this spec.
pub(super) fn manifest(spec: Value) -> Manifest {
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"}, "spec": spec});
    let pod: ApiPod = serde_json::from_value(pod).unwrap();
    Manifest::from_pod(pod).unwrap()
}

/// A spec with regular containers of these names.
pub(super) fn simple(policy: &str, names: &[&str]) -> Value {
    let containers: Vec<Value> = names
        .iter()
        .map(|n| json!({"name": n, "image": format!("img-{n}:1")}))
        .collect();
    json!({"restartPolicy": policy, "containers": containers, "terminationGracePeriodSeconds": 30})
}

/// One pod, its worker's state, and everything around it.
pub(super) struct TestEnv {
    pub(super) now: Timestamp,
    pub(super) node: NodeState,
    pub(super) spec: Arc<PodSpecView>,
    pub(super) pod: PodSyncStatus,
    pub(super) runtime: PodRuntimeState,
    pub(super) volumes: Option<Vec<ObservedVolume>>,
    pub(super) disk: Option<PodCheckpoint>,
    pub(super) images: BTreeSet<String>,
    /// What device-manager answers.
    pub(super) devices: DeviceAdmission,
    /// Every executed step.
    pub(super) history: Vec<Step>,
    /// Executed hooks.
    pub(super) hooks: Vec<(StepKey, String)>,
    /// Names of created containers and sandboxes.
    names: BTreeSet<String>,
    ids: u32,
}

impl TestEnv {
    pub(super) fn new(spec: Value) -> Self {
        let spec = Arc::new(PodSpecView::from_manifest(&manifest(spec), &[]));
        let mut env = TestEnv {
            now: at(0),
            node: node(),
            pod: PodSyncStatus::default(),
            spec,
            runtime: PodRuntimeState::default(),
            volumes: None,
            disk: None,
            images: BTreeSet::new(),
            devices: DeviceAdmission::Allocated(Default::default()),
            history: Vec::new(),
            hooks: Vec::new(),
            names: BTreeSet::new(),
            ids: 0,
        };
        env.restart_process();
        env
    }

    /// Replaces the process: only stored and reported state remains.
    pub(super) fn restart_process(&mut self) {
        let removal_requested = self.pod.removal_requested;
        let lifecycle = std::mem::take(&mut self.pod.lifecycle);
        self.pod = PodSyncStatus {
            uid: "u1".into(),
            has_source: !removal_requested,
            has_start_permit: true,
            spec: Some(Arc::clone(&self.spec)),
            removal_requested,
            lifecycle,
            ..PodSyncStatus::default()
        };
        if let Some(checkpoint) = &self.disk {
            self.pod.checkpoint = checkpoint.clone();
            self.pod.checkpointed = true;
        } else {
            self.pod.checkpoint.acknowledged_at = Some(self.now);
        }
        self.relist();
        if let Some(volumes) = self.volumes.clone() {
            apply_result::on_volumes(&mut self.pod, 1, volumes);
        }
    }

    /// Its source removes the pod.
    pub(super) fn remove(&mut self) {
        (self.pod.removal_requested, self.pod.has_source) = (true, false);
    }

    /// Forgets the stopped pod, and starts it over under another worker.
    pub(super) fn start_over(&mut self) {
        let plan = self.plan();
        assert!(plan.forget && self.pod.in_flight.is_empty(), "{plan:?}");
        let former = std::mem::take(&mut self.pod);
        self.disk = None;
        self.restart_process();
        self.pod.take_runtime_state(former);
    }

    /// Sets another spec for the pod.
    pub(super) fn update_spec(&mut self, manifest: &Manifest) {
        self.spec = Arc::new(PodSpecView::from_manifest(manifest, &[]));
        self.pod.spec = Some(Arc::clone(&self.spec));
    }

    /// Reports the runtime's present state.
    pub(super) fn relist(&mut self) {
        self.runtime.observed_at = Some(self.now);
        let effects = self.pod.effect_count;
        let known = self.pod.last_reported.observed_at;
        let reported = self.runtime.clone();
        let repeat = apply_result::on_refreshed(&mut self.pod, reported, effects, known, self.now);
        assert!(!repeat, "the report is accepted");
    }

    pub(super) fn advance_clock(&mut self, seconds: i64) {
        let duration = SignedDuration::from_secs(seconds);
        self.now = self.now.checked_add(duration).unwrap();
    }

    pub(super) fn view(&self) -> View<'_> {
        View {
            pod: &self.pod,
            node: &self.node,
            now: self.now,
        }
    }

    pub(super) fn plan(&self) -> Plan {
        pod_worker::plan(&self.view())
    }

    /// Plans and starts the steps, which are then in flight.
    pub(super) fn start_steps(&mut self) -> Vec<Step> {
        let plan = self.plan();
        let is_terminating = self.pod.checkpoint.termination.is_some();
        let starts = |step: &Step| {
            matches!(
                step,
                Step::CreateSandbox { .. }
                    | Step::CreateContainer { .. }
                    | Step::StartContainer { .. }
            )
        };
        assert!(
            !is_terminating || !plan.steps.iter().any(starts),
            "a terminating pod starts again: {plan:?}"
        );
        apply_result::on_started(&mut self.pod, &plan, self.now);
        for key in &plan.abandoned {
            let outcome = StepOutcome::Cancelled;
            apply_result::on_finished(&mut self.pod, key, outcome, self.now);
        }
        plan.steps
    }

    /// Finishes a step in flight, with its effect.
    pub(super) fn finish(&mut self, step: &Step) {
        let outcome = self.effect(step);
        apply_result::on_finished(&mut self.pod, &step.key(), outcome, self.now);
        if matches!(step, Step::StopContainer { .. }) {
            self.relist();
            self.pod.failures.remove(&step.key());
        }
    }

    /// Fails a step in flight, without effect.
    pub(super) fn fail(&mut self, step: &Step, failure: StepFailure) {
        let outcome = StepOutcome::Failed(failure);
        apply_result::on_finished(&mut self.pod, &step.key(), outcome, self.now);
    }

    /// Plans and executes until there is nothing to do now.
    pub(super) fn run_until_idle(&mut self) {
        for _ in 0..200 {
            let steps = self.start_steps();
            if steps.is_empty() && self.pod.in_flight.is_empty() {
                return;
            }
            for step in steps {
                self.finish(&step);
            }
        }
        panic!("does not become idle: {:?}", self.plan());
    }

    fn next_id(&mut self, prefix: &str) -> String {
        self.ids += 1;
        format!("{prefix}{}", self.ids)
    }

    /// Exits the running container of a name, and reports it.
    pub(super) fn exit_container(&mut self, name: &str, code: i32) {
        let id = self.running(name).expect("the container runs");
        self.exit_by_id(&id, code);
        self.relist();
    }

    /// The id of the running container of a name.
    pub(super) fn running(&self, name: &str) -> Option<String> {
        let mut containers = self.runtime.containers.iter();
        let running = containers.find(|c| c.name == name && c.state == ContainerState::Running);
        running.map(|c| c.id.clone())
    }

    pub(super) fn running_names(&self) -> Vec<&str> {
        let containers = self.runtime.containers.iter();
        let running = containers.filter(|c| c.state == ContainerState::Running);
        let mut names: Vec<&str> = running.map(|c| c.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// The subjects of the steps to start now.
    pub(super) fn planned_keys(&self) -> Vec<StepKey> {
        self.plan().steps.iter().map(Step::key).collect()
    }

    /// Waiting reasons by container.
    pub(super) fn waiting_reasons(&self) -> BTreeMap<String, String> {
        let waiting = self.plan().waiting_containers.into_iter();
        waiting.map(|w| (w.container, w.reason)).collect()
    }
}
