use std::collections::HashMap;

use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message;

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
fn lists_are_grouped_by_pod_and_entries_without_pod_labels_ignored() {
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
    assert!(pod.sandboxes["s"].ready, "ready is the enum's zero value");
    let app = &pod.containers["c"];
    assert_eq!(
        (app.phase, app.attempt, app.name.as_str()),
        (ContainerPhase::Exited, 2, "app")
    );
}

#[test]
fn primary_address_comes_first() {
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
fn missing_and_false_conditions_are_not_ready() {
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
    let check = health_check(v1::VersionResponse::default(), status);
    assert_eq!(check.not_ready, None);
    assert_eq!(
        check.network_not_ready.as_deref(),
        Some("NetworkPluginNotReady: no CNI")
    );
    let empty = health_check(
        v1::VersionResponse::default(),
        v1::StatusResponse::default(),
    );
    assert!(empty.not_ready.is_some());
}

#[test]
fn pid_is_read_from_the_verbose_information() {
    let cases = [
        (
            r#"{"sandboxID":"s","pid":42,"config":{"envs":[]}}"#,
            Some(42),
        ),
        (r#"{"sandboxID":"s","pid":0}"#, None),
        (r#"{"pid":-1}"#, None),
        (r#"{"pid":99999999999}"#, None),
        (r#"{"pid":"42"}"#, None),
        (r#"{"pid":42"#, None),
        (r#"{}"#, None),
        ("[]", None),
        ("", None),
    ];
    for (info_json, expected) in cases {
        let info = [("info".to_owned(), info_json.to_owned())].into();
        assert_eq!(pid(&info), expected, "{info_json}");
    }
    assert_eq!(pid(&HashMap::new()), None);
    let deep = [("info".to_owned(), "[".repeat(100_000))].into();
    assert_eq!(pid(&deep), None);
}

/// Random bytes, and valid messages with some bytes changed.
fn bytes(valid: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((any::<Index>(), any::<u8>()), 0..8);
    let changed = edits.prop_map(move |edits| {
        let mut bytes = valid.clone();
        for (index, byte) in edits {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        bytes
    });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..200), changed]
}

fn sandbox_status() -> v1::PodSandboxStatus {
    v1::PodSandboxStatus {
        id: "s".to_owned(),
        metadata: Some(Default::default()),
        created_at: 1 << 60,
        network: Some(v1::PodSandboxNetworkStatus {
            ip: "10.0.0.1".to_owned(),
            additional_ips: vec![Default::default()],
        }),
        linux: Some(v1::LinuxPodSandboxStatus {
            namespaces: Some(v1::Namespace {
                options: Some(Default::default()),
            }),
        }),
        labels: labels("u"),
        ..Default::default()
    }
}

fn encoded_container_status() -> Vec<u8> {
    let status = v1::ContainerStatus {
        id: "c".to_owned(),
        metadata: Some(Default::default()),
        state: v1::ContainerState::ContainerExited.into(),
        created_at: 1 << 60,
        started_at: 1 << 61,
        finished_at: 1 << 62,
        exit_code: -1,
        image: Some(Default::default()),
        labels: labels("u"),
        annotations: labels("u"),
        ..Default::default()
    };
    let response = v1::ContainerStatusResponse {
        status: Some(status),
        info: [(
            "info".to_owned(),
            r#"{"pid":42,"removing":false}"#.to_owned(),
        )]
        .into(),
    };
    response.encode_to_vec()
}

fn encoded_container_list() -> Vec<u8> {
    let container = |id: &str| v1::Container {
        id: id.to_owned(),
        metadata: Some(Default::default()),
        state: v1::ContainerState::ContainerRunning.into(),
        created_at: 1 << 60,
        labels: labels("u"),
        ..Default::default()
    };
    let containers = vec![container("a"), container("b")];
    v1::ListContainersResponse { containers }.encode_to_vec()
}

fn encoded_event() -> Vec<u8> {
    let event = v1::ContainerEventResponse {
        container_id: "c".to_owned(),
        container_event_type: 1,
        created_at: 1 << 60,
        pod_sandbox_status: Some(sandbox_status()),
        ..Default::default()
    };
    event.encode_to_vec()
}

fn encoded_sandbox_status() -> Vec<u8> {
    let response = v1::PodSandboxStatusResponse {
        status: Some(sandbox_status()),
        ..Default::default()
    };
    response.encode_to_vec()
}

proptest! {
    #[test]
    fn any_container_status_is_converted(bytes in bytes(encoded_container_status())) {
        if let Ok(response) = v1::ContainerStatusResponse::decode(bytes.as_slice()) {
            pid(&response.info);
            container(response.status.unwrap_or_default(), String::new());
        }
    }

    #[test]
    fn any_container_list_is_converted(bytes in bytes(encoded_container_list())) {
        if let Ok(response) = v1::ListContainersResponse::decode(bytes.as_slice()) {
            listing(Vec::new(), response.containers);
        }
    }

    #[test]
    fn any_sandbox_status_is_converted(bytes in bytes(encoded_sandbox_status())) {
        if let Ok(response) = v1::PodSandboxStatusResponse::decode(bytes.as_slice()) {
            sandbox(response.status.unwrap_or_default());
        }
    }

    #[test]
    fn any_event_is_converted(bytes in bytes(encoded_event())) {
        if let Ok(message) = v1::ContainerEventResponse::decode(bytes.as_slice()) {
            event(message);
        }
    }

    #[test]
    fn any_verbose_information_is_accepted(text: String) {
        pid(&[("info".to_owned(), text)].into());
    }

    #[test]
    fn any_enum_value_and_time_is_converted(state: i32, created: i64, started: i64, finished: i64, code: i32) {
        let status = v1::ContainerStatus {
            state, created_at: created, started_at: started, finished_at: finished, exit_code: code,
            ..Default::default()
        };
        container(status, String::new());
        sandbox(v1::PodSandboxStatus { state, created_at: created, ..Default::default() });
        event(v1::ContainerEventResponse {
            container_event_type: state, created_at: created, ..Default::default()
        });
        listing(
            vec![v1::PodSandbox { state, created_at: created, labels: labels("u"), ..Default::default() }],
            vec![v1::Container { state, created_at: created, labels: labels("u"), ..Default::default() }],
        );
    }
}
