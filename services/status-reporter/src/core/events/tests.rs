use super::*;

fn notice(id: u32, message: &str) -> EventNotice {
    EventNotice {
        id: format!("pleg-1-{id}"),
        object: InvolvedObject {
            kind: "Pod".to_owned(),
            namespace: "n".into(),
            name: "p".into(),
            uid: "u".into(),
        },
        field_path: "spec.containers{web}".into(),
        warning: true,
        reason: "Unhealthy".into(),
        message: message.into(),
        at: Timestamp::from_second(1_767_225_600 + i64::from(id)).unwrap(),
        annotations: BTreeMap::new(),
    }
}

fn at(second: u64) -> Duration {
    Duration::from_secs(second)
}

#[test]
fn event_has_upstream_form() {
    let mut correlator = Correlator::new("node");
    let pending = correlator.correlate(&notice(1, "no"), at(0)).unwrap();
    assert_eq!(pending.patch, None);
    assert_eq!(pending.namespace, "n");
    let suffix = pending.name.strip_prefix("p.").unwrap();
    assert!(suffix.len() == 16 && suffix.bytes().all(|b| b.is_ascii_hexdigit()));
    assert_eq!(
        pending.event,
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": { "name": pending.name, "namespace": "n" },
            "involvedObject": {
                "kind": "Pod", "apiVersion": "v1", "namespace": "n", "name": "p", "uid": "u",
                "fieldPath": "spec.containers{web}",
            },
            "reason": "Unhealthy", "message": "no", "type": "Warning", "count": 1,
            "source": { "component": "kubelet", "host": "node" },
            "reportingComponent": "kubelet", "reportingInstance": "node",
            "firstTimestamp": "2026-01-01T00:00:01Z", "lastTimestamp": "2026-01-01T00:00:01Z",
        })
    );
    // The same notice has the same event name after a restart.
    let again = Correlator::new("node")
        .correlate(&notice(1, "no"), at(9))
        .unwrap();
    assert_eq!(again.name, pending.name);
}

#[test]
fn annotations_of_a_notice_are_those_of_its_event() {
    let mut notice = notice(1, "The node was low on resource: memory. ");
    notice.annotations = BTreeMap::from([("starved_resource".into(), "memory".into())]);
    let pending = Correlator::new("node").correlate(&notice, at(0)).unwrap();
    let annotations = &pending.event["metadata"]["annotations"];
    assert_eq!(*annotations, json!({ "starved_resource": "memory" }));
}

#[test]
fn node_events_are_in_namespace_default() {
    let mut notice = notice(1, "Node n status is now: NodeReady");
    notice.object = InvolvedObject {
        kind: "Node".to_owned(),
        namespace: String::new(),
        name: "n".into(),
        uid: "n".into(),
    };
    notice.field_path = String::new();
    let pending = Correlator::new("n").correlate(&notice, at(0)).unwrap();
    assert_eq!(pending.namespace, "default");
    let object = json!({ "kind": "Node", "apiVersion": "v1", "name": "n", "uid": "n" });
    assert_eq!(pending.event["involvedObject"], object);
}

#[test]
fn repeated_event_counts_up() {
    let mut correlator = Correlator::new("node");
    let first = correlator.correlate(&notice(1, "no"), at(0)).unwrap();
    let second = correlator.correlate(&notice(2, "no"), at(1)).unwrap();
    assert_eq!(second.name, first.name);
    assert_eq!(
        second.event["firstTimestamp"],
        first.event["firstTimestamp"]
    );
    assert_eq!(
        second.patch,
        Some(json!({ "count": 2, "lastTimestamp": "2026-01-01T00:00:02Z", "message": "no" }))
    );
    let mut elsewhere = notice(3, "no");
    elsewhere.field_path = "spec.containers{other}".into();
    assert_eq!(correlator.correlate(&elsewhere, at(2)).unwrap().patch, None);
}

#[test]
fn similar_events_are_combined_from_the_tenth_on() {
    let mut correlator = Correlator::new("node");
    let mut emit =
        |id: u32, second| correlator.correlate(&notice(id, &format!("no {id}")), at(second));
    for id in 1..10 {
        assert_eq!(emit(id, 0).unwrap().event["message"], format!("no {id}"));
    }
    let tenth = emit(10, 1).unwrap();
    assert_eq!(
        tenth.event["message"],
        "(combined from similar events): no 10"
    );
    assert_eq!(tenth.patch, None);
    let next = emit(11, 2).unwrap();
    assert_eq!(next.name, tenth.name);
    assert_eq!(next.patch.unwrap()["count"], 2);
    // After ten quiet minutes they are separate again.
    assert_eq!(emit(12, 700).unwrap().event["message"], "no 12");
}

#[test]
fn object_is_rate_limited() {
    let mut correlator = Correlator::new("node");
    let emitted = (1..=40).filter(|id| correlator.correlate(&notice(*id, "no"), at(1)).is_some());
    assert_eq!(emitted.count(), 25);
    assert!(correlator.correlate(&notice(41, "no"), at(290)).is_none());
    let next = correlator.correlate(&notice(42, "no"), at(302)).unwrap();
    assert_eq!(next.patch.unwrap()["count"], 42, "dropped events count");
    let mut other = notice(50, "no");
    other.object.name = "q".into();
    assert!(correlator.correlate(&other, at(302)).is_some());
}

#[test]
fn long_names_are_cut_off() {
    let name = event_name(&format!("{}.{}", "a".repeat(235), "b".repeat(20)), 7);
    assert_eq!(name.len(), 235 + 17);
    assert!(name.len() <= MAX_NAME && !name.contains(".."));
}

#[test]
fn removed_objects_are_forgotten() {
    let mut correlator = Correlator::new("n1");
    let of_pod = |id, uid: &str| EventNotice {
        object: InvolvedObject {
            uid: uid.into(),
            ..notice(id, "m").object
        },
        ..notice(id, "m")
    };
    for (id, uid) in [(1, "u1"), (2, "u2")] {
        correlator.correlate(&of_pod(id, uid), at(0)).unwrap();
    }
    correlator.forget(&[object_key("u1")].into());
    let known = (
        correlator.aggregates.len(),
        correlator.emitted.len(),
        correlator.spam_filter.len(),
    );
    assert_eq!(known, (1, 1, 1));
    let kept = correlator.correlate(&of_pod(3, "u2"), at(1)).unwrap();
    assert_eq!(kept.event["count"], 2);
}
