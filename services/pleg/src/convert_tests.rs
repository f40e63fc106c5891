use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn labels(uid: &str) -> HashMap<String, String> {
    let mut labels = HashMap::new();
    PodLabels {
        uid: uid.to_owned(),
        namespace: "ns".to_owned(),
        name: "pod".to_owned(),
    }
    .write(&mut labels);
    labels
}

#[test]
fn lists_are_grouped_by_pod_and_strangers_ignored() {
    let sandbox = |id: &str, labels| v1::PodSandbox {
        id: id.to_owned(),
        labels,
        ..Default::default()
    };
    let container = v1::Container {
        id: "c".to_owned(),
        labels: labels("u"),
        state: v1::ContainerState::ContainerExited.into(),
        metadata: Some(v1::ContainerMetadata {
            name: "app".to_owned(),
            attempt: 2,
        }),
        ..Default::default()
    };
    let listing = listing(
        vec![sandbox("s", labels("u")), sandbox("x", HashMap::new())],
        vec![container],
    );
    assert_eq!(listing.len(), 1);
    let pod = &listing["u"];
    assert_eq!((pod.pod.name.as_str(), pod.sandboxes.len()), ("pod", 1));
    assert!(pod.sandboxes["s"].ready, "zero is ready");
    let app = &pod.containers["c"];
    assert_eq!(
        (app.phase, app.attempt, app.name.as_str()),
        (ContainerPhase::Exited, 2, "app")
    );
}

#[test]
fn addresses_primary_first() {
    let status = v1::PodSandboxStatus {
        network: Some(v1::PodSandboxNetworkStatus {
            ip: "10.0.0.1".to_owned(),
            additional_ips: vec![v1::PodIp {
                ip: "fd00::1".to_owned(),
            }],
        }),
        ..Default::default()
    };
    assert_eq!(sandbox(status).ips, ["10.0.0.1", "fd00::1"]);
    assert!(sandbox(v1::PodSandboxStatus::default()).ips.is_empty());
}

#[test]
fn conditions() {
    let condition = |kind: &str, status, reason: &str, message: &str| v1::RuntimeCondition {
        r#type: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    let status = v1::StatusResponse {
        status: Some(v1::RuntimeStatus {
            conditions: vec![
                condition("RuntimeReady", true, "", ""),
                condition("NetworkReady", false, "NetworkPluginNotReady", "no CNI"),
            ],
        }),
        ..Default::default()
    };
    let polled_now = polled(v1::VersionResponse::default(), status);
    assert_eq!(polled_now.not_ready, None);
    assert_eq!(
        polled_now.network_not_ready.as_deref(),
        Some("NetworkPluginNotReady: no CNI")
    );
    let silent = polled(
        v1::VersionResponse::default(),
        v1::StatusResponse::default(),
    );
    assert!(silent.not_ready.is_some());
}

proptest! {
    #[test]
    fn strange_numbers_do_no_harm(state: i32, created: i64, started: i64, finished: i64, code: i32) {
        let status = v1::ContainerStatus {
            state, created_at: created, started_at: started, finished_at: finished, exit_code: code,
            ..Default::default()
        };
        container(status, String::new());
        sandbox(v1::PodSandboxStatus { state, created_at: created, ..Default::default() });
        hint(v1::ContainerEventResponse {
            container_event_type: state, created_at: created, ..Default::default()
        });
        listing(
            vec![v1::PodSandbox { state, created_at: created, labels: labels("u"), ..Default::default() }],
            vec![v1::Container { state, created_at: created, labels: labels("u"), ..Default::default() }],
        );
    }
}
