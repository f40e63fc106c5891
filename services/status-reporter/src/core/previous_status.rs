//! The previous status that a new one is computed from.

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};
use polylet_model::constants::condition::DISRUPTION_TARGET;
use polylet_model::status::is_terminal;
use polylet_model::{ContainerKind, Manifest};

use super::report::merge::OWNED_CONDITIONS;

/// Our last status with what others have written at the API server; the API server's where there
/// is no other.
pub(super) fn previous(last: Option<&PodStatus>, api: Option<&PodStatus>) -> Option<PodStatus> {
    let (Some(last), Some(api)) = (last, api) else {
        return last.or(api).cloned();
    };
    let (terminal, foreign) = foreign_fields(api);
    let own = last.conditions.iter().flatten();
    let own = own.filter(|c| is_owned(c)).cloned();
    let mut last = PodStatus {
        conditions: Some(foreign.into_iter().cloned().chain(own).collect()),
        ..last.clone()
    };
    if let Some(phase) = terminal.filter(|_| !last.phase.as_deref().is_some_and(is_terminal)) {
        last.phase = Some(phase.to_owned());
        last.reason.clone_from(&api.reason);
        last.message.clone_from(&api.message);
    }
    Some(last)
}

/// Forgets the init containers of a static pod that have completed. As upstream, which has no status of
/// static pods after a restart: if the runtime does not have them either, they have completed because a
/// regular container exists, and else they run again.
pub(super) fn forget_init_containers(last: &PodStatus, manifest: &Manifest) -> PodStatus {
    let mut last = last.clone();
    let is_over = last.phase.as_deref().is_some_and(is_terminal);
    if is_over || !manifest.is_static() {
        return last;
    }
    let is_init = |name: &str| {
        let mut containers = manifest.all_containers();
        containers.any(|(kind, spec)| kind == ContainerKind::Init && spec.name == name)
    };
    let completed = |status: &ContainerStatus| {
        let end = status.state.as_ref().and_then(|it| it.terminated.as_ref());
        end.is_some_and(|end| end.exit_code == 0)
    };
    for statuses in last.init_container_statuses.iter_mut() {
        statuses.retain(|status| !(is_init(&status.name) && completed(status)));
    }
    last
}

/// What others than the node agent may write: a terminal phase, and conditions that it does not own.
pub(super) fn foreign_fields(status: &PodStatus) -> (Option<&str>, Vec<&PodCondition>) {
    let conditions = status.conditions.iter().flatten();
    let terminal = status.phase.as_deref().filter(|phase| is_terminal(phase));
    (terminal, conditions.filter(|c| !is_owned(c)).collect())
}

pub(super) fn is_owned(condition: &PodCondition) -> bool {
    let type_ = condition.type_.as_str();
    OWNED_CONDITIONS.contains(&type_) || type_ == DISRUPTION_TARGET
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated,
    };
    use serde_json::json;

    use super::*;

    fn manifest(source: &str) -> Manifest {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u",
                "annotations": {"kubernetes.io/config.source": source}},
            "spec": {
                "initContainers": [
                    {"name": "done", "image": "x"},
                    {"name": "failed", "image": "x"},
                    {"name": "sidecar", "image": "x", "restartPolicy": "Always"},
                    {"name": "running", "image": "x"}],
                "containers": [{"name": "a", "image": "x"}]},
        });
        Manifest::from_json(pod.to_string().as_bytes()).unwrap()
    }

    fn last(phase: &str) -> PodStatus {
        let exited = |name: &str, exit_code| ContainerStatus {
            name: name.to_owned(),
            state: Some(ContainerState {
                terminated: Some(ContainerStateTerminated {
                    exit_code,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let running = ContainerStatus {
            name: "running".to_owned(),
            state: Some(ContainerState {
                running: Some(ContainerStateRunning::default()),
                ..Default::default()
            }),
            ..Default::default()
        };
        PodStatus {
            phase: Some(phase.to_owned()),
            init_container_statuses: Some(vec![
                exited("done", 0),
                exited("failed", 1),
                exited("sidecar", 0),
                running,
            ]),
            ..Default::default()
        }
    }

    #[test]
    fn completed_init_containers_of_static_pods_are_forgotten() {
        let all = ["done", "failed", "sidecar", "running"];
        let cases = [
            ("file", "Running", &all[1..]),
            ("file", "Succeeded", &all[..]),
            ("http", "Pending", &all[1..]),
            ("api", "Running", &all[..]),
        ];
        for (source, phase, expected) in cases {
            let status = forget_init_containers(&last(phase), &manifest(source));
            let left = status.init_container_statuses.into_iter().flatten();
            let names: Vec<String> = left.map(|status| status.name).collect();
            assert_eq!(names, expected, "{source}, {phase}");
        }
    }
}
