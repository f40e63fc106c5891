//! Containers that have ended, by their statuses.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

/// A container whose status has changed to one that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Termination {
    /// `container`, `init_container` or `ephemeral_container`.
    pub(crate) container_type: &'static str,
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
}

/// The containers that have ended since the status before. One that ends, restarts and ends between
/// two statuses counts once, as upstream.
pub(crate) fn between(before: Option<&PodStatus>, now: &PodStatus) -> Vec<Termination> {
    type List = fn(&PodStatus) -> Option<&Vec<ContainerStatus>>;
    let lists: [(&'static str, List); 3] = [
        ("init_container", |status| {
            status.init_container_statuses.as_ref()
        }),
        ("container", |status| status.container_statuses.as_ref()),
        ("ephemeral_container", |status| {
            status.ephemeral_container_statuses.as_ref()
        }),
    ];
    let mut found = Vec::new();
    for (container_type, list) in lists {
        let known = before.and_then(list).into_iter().flatten();
        let known: Vec<_> = known.collect();
        for container in list(now).into_iter().flatten() {
            let same = known.iter().find(|known| known.name == container.name);
            if same.is_some_and(|known| terminated(known).is_some()) {
                continue;
            }
            found.extend(terminated(container).map(|terminated| Termination {
                container_type,
                exit_code: terminated.exit_code,
                reason: terminated.reason.clone().unwrap_or_default(),
            }));
        }
    }
    found
}

fn terminated(
    container: &ContainerStatus,
) -> Option<&k8s_openapi::api::core::v1::ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_end_counts_once() {
        let container = |name: &str, state: serde_json::Value| json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state });
        let ended = |code: i32| json!({ "terminated": { "exitCode": code, "reason": "Error" } });
        let running = json!({ "running": {} });
        let status = |init: serde_json::Value, own: serde_json::Value| -> PodStatus {
            let status = json!({
                "initContainerStatuses": [container("i", init)],
                "containerStatuses": [container("a", own)],
            });
            serde_json::from_value(status).unwrap()
        };
        let before = status(ended(0), running.clone());
        let after = status(ended(0), ended(3));
        let own = Termination {
            container_type: "container",
            exit_code: 3,
            reason: "Error".to_owned(),
        };
        let own = [own];
        assert_eq!(between(Some(&before), &after), own);
        assert_eq!(between(Some(&after), &after), []);
        assert_eq!(between(None, &after).len(), 2);
        // It was restarted, and has ended again.
        assert_eq!(between(Some(&status(ended(0), running)), &after), own);
    }
}
