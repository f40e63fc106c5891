use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use serde_json::{Value, json};

use super::conditions::is_ready;
use super::facts::{
    NodeFacts, NodeImage, NodeRuntimeStatus, NodeSettings, PLEG_TIMEOUT, PressureCondition,
    PressureResource,
};
use super::status::status;
use super::{events, patch};

mod extended_resources;
mod newer_server;
mod object;
mod report_schedule;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn settings() -> NodeSettings {
    NodeSettings {
        name: "n1".to_owned(),
        port: 10250,
        capacity: BTreeMap::from([
            ("cpu".to_owned(), 2000),
            ("memory".to_owned(), 4 << 30),
            ("pods".to_owned(), 110),
            ("hugepages-2Mi".to_owned(), 0),
        ]),
        allocatable: BTreeMap::from([("cpu".to_owned(), 1500), ("memory".to_owned(), 3 << 30)]),
        max_images: 2,
        ..NodeSettings::default()
    }
}

fn pressure(active: bool) -> PressureCondition {
    PressureCondition {
        active,
        reason: if active { "Low" } else { "Fine" }.to_owned(),
    }
}

fn healthy() -> NodeFacts {
    NodeFacts {
        runtime: Some(NodeRuntimeStatus {
            version: "containerd://2.1.9".to_owned(),
            ..NodeRuntimeStatus::default()
        }),
        pressure: PressureResource::ALL
            .map(|resource| (resource, pressure(false)))
            .into(),
        addresses: Some(vec!["192.0.2.7".to_owned()]),
        images_synced: true,
        devices_synced: true,
        has_csi_node: true,
        ..NodeFacts::default()
    }
}

fn ready(facts: &NodeFacts, now: Timestamp) -> (String, String) {
    let status = status(&settings(), facts, &NodeStatus::default(), now);
    let conditions = status.conditions.unwrap();
    let ready = conditions
        .iter()
        .find(|c| c.type_ == "Ready")
        .unwrap()
        .clone();
    (ready.status, ready.message.unwrap())
}

#[test]
fn ready_when_runtime_and_network_are_ready() {
    let runtime = |not_ready: Option<&str>, network: Option<&str>| {
        let mut facts = healthy();
        facts.runtime = Some(NodeRuntimeStatus {
            not_ready: not_ready.map(str::to_owned),
            network_not_ready: network.map(str::to_owned),
            ..NodeRuntimeStatus::default()
        });
        facts
    };
    let stale = |since| NodeFacts {
        pleg_stale_since: Some(since),
        ..healthy()
    };
    let unknown = NodeFacts {
        runtime: None,
        ..healthy()
    };
    let cases = [
        (healthy(), "True", "kubelet is posting ready status"),
        (
            unknown,
            "False",
            "container runtime status check may not have completed yet",
        ),
        (
            runtime(Some("gone"), Some("gone")),
            "False",
            "container runtime is down: gone",
        ),
        (
            runtime(
                None,
                Some("NetworkReady=false reason:NetworkPluginNotReady"),
            ),
            "False",
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady",
        ),
        (
            runtime(Some("a"), Some("b")),
            "False",
            "[container runtime is down: a, container runtime network not ready: b]",
        ),
        (stale(at(0)), "True", "kubelet is posting ready status"),
    ];
    for (facts, status, message) in cases {
        assert_eq!(
            ready(&facts, at(10)),
            (status.to_owned(), message.to_owned())
        );
    }
    let late = at(0).saturating_add(PLEG_TIMEOUT).unwrap();
    assert_eq!(ready(&stale(at(0)), late).0, "False");
}

#[test]
fn transition_time_changes_only_with_the_status() {
    let none = NodeStatus::default();
    let first = status(&settings(), &healthy(), &none, at(0));
    let mut facts = healthy();
    facts
        .pressure
        .insert(PressureResource::Memory, pressure(true));
    let second = status(&settings(), &facts, &first, at(60));
    let times = |status: &NodeStatus, kind: &str| {
        let condition = status.conditions.iter().flatten().find(|c| c.type_ == kind);
        let condition = condition.unwrap();
        let time = |time: &Option<_>| {
            let k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at) = time.clone().unwrap();
            at
        };
        (
            time(&condition.last_transition_time),
            time(&condition.last_heartbeat_time),
        )
    };
    assert_eq!(times(&second, "MemoryPressure"), (at(60), at(60)));
    assert_eq!(times(&second, "DiskPressure"), (at(0), at(60)));
    assert_eq!(times(&second, "Ready"), (at(0), at(60)));
    assert!(patch::differs_urgently(&first, &second));
    let again = status(&settings(), &facts, &second, at(90));
    assert!(!patch::differs(&second, &again));
    let reasons: Vec<_> = events::status_changed("n1", &first, &second)
        .into_iter()
        .map(|e| e.reason)
        .collect();
    assert_eq!(reasons, ["NodeHasInsufficientMemory"]);
    assert!(events::status_changed("n1", &second, &again).is_empty());
    // A created object has events for its pressures, and for Ready once it is.
    let reasons = |reasons: Vec<events::NodeEvent>| -> Vec<&str> {
        reasons.iter().map(|e| e.reason).collect()
    };
    let pressures = [
        "NodeHasSufficientMemory",
        "NodeHasNoDiskPressure",
        "NodeHasSufficientPID",
    ];
    assert_eq!(
        reasons(events::status_changed("n1", &none, &first)),
        pressures
    );
    assert_eq!(reasons(events::started("n1", &first)), pressures);
    let unmade = NodeFacts {
        has_csi_node: false,
        ..healthy()
    };
    let new = status(&settings(), &unmade, &none, at(0));
    let ready = new
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == "Ready")
        .unwrap();
    assert_eq!(
        ready.message.as_deref(),
        Some("CSINode is not yet initialized")
    );
    let reasons = events::status_changed("n1", &new, &first);
    assert_eq!(
        reasons.last().unwrap().message,
        "Node n1 status is now: NodeReady"
    );
    assert!(is_ready(Some(&first)) && !is_ready(Some(&new)) && !is_ready(None));
}

#[test]
fn fields_of_others_stay_and_ours_are_corrected() {
    let current: NodeStatus = serde_json::from_value(json!({
        "capacity": {"cpu": "1", "example.com/gpu": "4", "hugepages-1Gi": "0"},
        "allocatable": {"cpu": "1", "example.com/gpu": "3", "example.com/gone": "2"},
        "conditions": [{"type": "NetworkUnavailable", "status": "False"}],
        "addresses": [{"type": "InternalIP", "address": "198.51.100.1"}],
        "volumesAttached": [{"name": "v", "devicePath": ""}],
    }))
    .unwrap();
    let desired = status(&settings(), &healthy(), &current, at(0));
    let reasons = serde_json::to_value(&desired).unwrap();
    assert_eq!(
        reasons["capacity"],
        json!({"cpu": "2", "memory": "4Gi", "pods": "110", "example.com/gpu": "4", "hugepages-2Mi": "0"})
    );
    // Extended resources that an administrator adds to the capacity are allocatable until removed.
    assert_eq!(
        reasons["allocatable"],
        json!({"cpu": "1500m", "memory": "3Gi", "example.com/gpu": "4"})
    );
    assert_eq!(reasons["conditions"][0]["type"], "NetworkUnavailable");
    let patch = &patch::status(&current, &desired, &BTreeMap::new())["status"];
    assert_eq!(
        patch["addresses"],
        json!([{"type": "InternalIP", "address": "192.0.2.7"}, {"type": "Hostname", "address": "n1"},
            {"$patch": "replace"}])
    );
    assert_eq!(patch["capacity"]["hugepages-1Gi"], Value::Null);
    assert_eq!(patch["capacity"].get("example.com/gpu"), None);
    assert_eq!(patch.get("volumesAttached"), None);
    assert_eq!(patch["conditions"].as_array().unwrap().len(), 4);
}

#[test]
fn cloud_controller_sets_the_addresses() {
    let mut external = settings();
    external.external_cloud = true;
    let kinds = |settings: &NodeSettings, current: &NodeStatus| -> Vec<String> {
        let status = status(settings, &healthy(), current, at(0));
        status
            .addresses
            .unwrap()
            .into_iter()
            .map(|address| address.address)
            .collect()
    };
    let none = NodeStatus::default();
    assert_eq!(kinds(&external, &none), ["n1"]);
    external.addresses_configured = true;
    assert_eq!(kinds(&external, &none), ["192.0.2.7", "n1"]);
    let current: NodeStatus = serde_json::from_value(
        json!({"addresses": [{"type": "ExternalIP", "address": "203.0.113.1"}]}),
    )
    .unwrap();
    assert_eq!(kinds(&external, &current), ["203.0.113.1"]);
}

#[test]
fn largest_images_come_first_with_digests_first() {
    let mut facts = healthy();
    for (id, bytes, names) in [
        ("a", 1, vec!["a:1"]),
        ("b", 3, vec!["b:1", "b@sha256:1"]),
        ("c", 2, vec![]),
    ] {
        let names = names.into_iter().map(str::to_owned).collect();
        facts
            .images
            .insert(id.to_owned(), NodeImage { names, bytes });
    }
    let images = |most| {
        let settings = NodeSettings {
            max_images: most,
            ..settings()
        };
        let status = status(&settings, &facts, &NodeStatus::default(), at(0));
        serde_json::to_value(status.images).unwrap()
    };
    assert_eq!(
        images(2),
        json!([{"names": ["b@sha256:1", "b:1"], "sizeBytes": 3}, {"names": [], "sizeBytes": 2}])
    );
    assert_eq!(images(-1).as_array().unwrap().len(), 3);
    assert_eq!(images(0), Value::Null);
}
