use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};
use serde_json::{Value, json};

use super::*;
use crate::constants::condition;

mod container_states;
mod pod_conditions;
mod pod_phases;
mod properties;
mod restarting;

/// Facts that live long enough to be lent.
#[derive(Clone, Debug)]
struct World {
    manifest: Manifest,
    sandboxes: Vec<Sandbox>,
    containers: Vec<Container>,
    verdicts: Vec<Verdict>,
    notes: Vec<Note>,
    resize: Option<PendingResize>,
    resizing: Option<Resizing>,
    stage: Stage,
    terminal: Option<Terminal>,
    previous: Option<PodStatus>,
    ends_are_decided: bool,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn world(spec: Value) -> World {
    sourced(spec, "api")
}

fn sourced(spec: Value, source: &str) -> World {
    let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 3,
        "annotations": {"kubernetes.io/config.source": source}}, "spec": spec});
    World {
        manifest: Manifest::from_json(pod.to_string().as_bytes()).unwrap(),
        sandboxes: Vec::new(),
        containers: Vec::new(),
        verdicts: Vec::new(),
        notes: Vec::new(),
        resize: None,
        resizing: None,
        stage: Stage::Syncing,
        terminal: None,
        previous: None,
        ends_are_decided: false,
    }
}

impl World {
    fn status(&self) -> PodStatus {
        compute(&StatusFacts {
            ends_are_decided: self.ends_are_decided,
            manifest: &self.manifest,
            sandboxes: &self.sandboxes,
            containers: &self.containers,
            verdicts: &self.verdicts,
            notes: &self.notes,
            resize: self.resize.as_ref(),
            resizing: self.resizing.as_ref(),
            stage: self.stage,
            terminal: self.terminal.as_ref(),
            acknowledged_at: Some(at(0)),
            host_ips: &["192.0.2.1".to_owned()],
            runtime: "containerd",
            recursive_read_only: true,
            previous: self.previous.as_ref(),
        })
    }

    fn phase(&self) -> String {
        self.status().phase.unwrap()
    }

    /// The status now is the one that stood before from here on.
    fn tell(&mut self) -> PodStatus {
        let status = self.status();
        self.previous = Some(status.clone());
        status
    }

    fn sandbox(mut self) -> Self {
        self.sandboxes = vec![Sandbox {
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

    fn with(mut self, container: Container) -> Self {
        self.containers.insert(0, container);
        self
    }

    fn note(mut self, name: &str, reason: &str) -> Self {
        self.notes.push(Note {
            container: name.into(),
            reason: reason.into(),
            message: "why".into(),
            restarts: 0,
        });
        self
    }

    fn verdict(mut self, id: &str, kind: ProbeKind, success: bool, since: i64) -> Self {
        self.verdicts
            .retain(|v| v.container_id.as_str() != id || v.kind != kind);
        self.verdicts.push(Verdict {
            container_id: id.into(),
            kind,
            success,
            since: Some(at(since)),
        });
        self
    }
}

fn made(name: &str, attempt: u32, phase: ContainerPhase) -> Container {
    let attempt_at = 10 + i64::from(attempt) * 100;
    Container {
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

fn running(name: &str, attempt: u32) -> Container {
    made(name, attempt, ContainerPhase::Running)
}

fn exited(name: &str, attempt: u32, code: i32) -> Container {
    let reason = if code == 0 { "Completed" } else { "Error" };
    Container {
        exit_code: code,
        reason: reason.into(),
        ..made(name, attempt, ContainerPhase::Exited)
    }
}

fn of<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerStatus {
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
    serde_json::to_value(of(status, name).state.as_ref().unwrap()).unwrap()
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
