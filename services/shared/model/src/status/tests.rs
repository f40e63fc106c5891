use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, LinuxContainerUser, PodCondition, PodStatus};
use serde_json::{Value, json};

use super::*;
use crate::constants::condition;
use crate::probe::ProbeKind;

mod cancelled_starts;
mod container_states;
mod devices;
mod pod_conditions;
mod pod_phases;
mod properties;
mod replacements;
mod restart_all;

/// Owned inputs of a status.
#[derive(Clone, Debug)]
struct Fixture {
    manifest: Manifest,
    sandboxes: Vec<RuntimeSandbox>,
    containers: Vec<RuntimeContainer>,
    probe_results: Vec<ContainerProbeResult>,
    waiting: Vec<WaitReason>,
    devices: Option<Vec<DeviceStatus>>,
    resize_pending: Option<PendingResize>,
    resize_in_progress: Option<ResizeInProgress>,
    worker_state: PodWorkerState,
    terminal: Option<TerminalDecision>,
    previous: Option<PodStatus>,
    defer_terminal_phase: bool,
    pod_level_resources: bool,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn fixture(spec: Value) -> Fixture {
    fixture_from_source(spec, "api")
}

fn fixture_from_source(spec: Value, source: &str) -> Fixture {
    let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 3,
        "annotations": {"kubernetes.io/config.source": source}}, "spec": spec});
    Fixture {
        manifest: Manifest::from_json(pod.to_string().as_bytes()).unwrap(),
        sandboxes: Vec::new(),
        containers: Vec::new(),
        probe_results: Vec::new(),
        waiting: Vec::new(),
        devices: Some(Vec::new()),
        resize_pending: None,
        resize_in_progress: None,
        worker_state: PodWorkerState::Syncing,
        terminal: None,
        previous: None,
        defer_terminal_phase: false,
        pod_level_resources: true,
    }
}

impl Fixture {
    fn status(&self) -> PodStatus {
        compute(&StatusInputs {
            defer_terminal_phase: self.defer_terminal_phase,
            manifest: &self.manifest,
            sandboxes: &self.sandboxes,
            containers: &self.containers,
            probe_results: &self.probe_results,
            waiting: &self.waiting,
            devices: self.devices.as_deref(),
            resize_pending: self.resize_pending.as_ref(),
            resize_in_progress: self.resize_in_progress.as_ref(),
            worker_state: self.worker_state,
            terminal: self.terminal.as_ref(),
            acknowledged_at: Some(at(0)),
            host_ips: &["192.0.2.1".to_owned()],
            runtime_name: "containerd",
            recursive_read_only: true,
            pod_level_resources: self.pod_level_resources,
            previous: self.previous.as_ref(),
        })
    }

    fn phase(&self) -> String {
        self.status().phase.unwrap()
    }

    /// Computes the status, which becomes the previous one.
    fn publish(&mut self) -> PodStatus {
        let status = self.status();
        self.previous = Some(status.clone());
        status
    }

    fn sandbox(mut self) -> Self {
        self.sandboxes = vec![RuntimeSandbox {
            id: "s".into(),
            attempt: 0,
            ready: true,
            ips: vec!["fd00::1".into(), "10.0.0.1".into()],
            created_at: Some(at(1)),
            host_network: false,
            runtime_handler: String::new(),
        }];
        self
    }

    fn with(mut self, container: RuntimeContainer) -> Self {
        self.containers.insert(0, container);
        self
    }

    fn waiting(mut self, name: &str, reason: &str) -> Self {
        self.waiting.push(WaitReason {
            container: name.into(),
            reason: reason.into(),
            message: "why".into(),
            restarts: 0,
        });
        self
    }

    fn probe_result(mut self, id: &str, kind: ProbeKind, success: bool, since: i64) -> Self {
        self.probe_results
            .retain(|v| v.container_id.as_str() != id || v.kind != kind);
        self.probe_results.push(ContainerProbeResult {
            container_id: id.into(),
            kind,
            success,
            since: Some(at(since)),
        });
        self
    }
}

fn container_in_phase(name: &str, attempt: u32, phase: ContainerPhase) -> RuntimeContainer {
    let attempt_at = 10 + i64::from(attempt) * 100;
    RuntimeContainer {
        id: format!("{name}{attempt}").into(),
        sandbox_id: "s".into(),
        name: name.into(),
        attempt,
        image: "docker.io/library/x:1".into(),
        image_id: "sha256:1".into(),
        phase,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        created_at: Some(at(attempt_at)),
        started_at: (phase != ContainerPhase::Created).then(|| at(attempt_at + 1)),
        actual: None,
        user: None,
        finished_at: (phase == ContainerPhase::Exited).then(|| at(attempt_at + 50)),
    }
}

fn running(name: &str, attempt: u32) -> RuntimeContainer {
    container_in_phase(name, attempt, ContainerPhase::Running)
}

fn exited(name: &str, attempt: u32, code: i32) -> RuntimeContainer {
    let reason = if code == 0 { "Completed" } else { "Error" };
    RuntimeContainer {
        exit_code: code,
        reason: reason.into(),
        ..container_in_phase(name, attempt, ContainerPhase::Exited)
    }
}

fn container_status<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerStatus {
    let lists = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    lists
        .into_iter()
        .flatten()
        .flatten()
        .find(|c| c.name == name)
        .unwrap()
}

fn state_of(status: &PodStatus, name: &str) -> Value {
    serde_json::to_value(container_status(status, name).state.as_ref().unwrap()).unwrap()
}

fn condition<'a>(status: &'a PodStatus, type_: &str) -> &'a PodCondition {
    status
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == type_)
        .unwrap()
}

fn since(status: &PodStatus, type_: &str) -> i64 {
    condition(status, type_)
        .last_transition_time
        .as_ref()
        .unwrap()
        .0
        .as_second()
        - 1_000_000
}
