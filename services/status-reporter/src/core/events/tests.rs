use super::*;

fn word(id: u32, message: &str) -> Word {
    Word {
        id: format!("pleg-1-{id}"),
        about: About {
            kind: "Pod".to_owned(),
            namespace: "n".into(),
            name: "p".into(),
            uid: "u".into(),
        },
        part: "spec.containers{web}".into(),
        warning: true,
        reason: "Unhealthy".into(),
        message: message.into(),
        at: Timestamp::from_second(1_767_225_600 + i64::from(id)).unwrap(),
    }
}

fn at(second: u64) -> Moment {
    Moment::from_secs(second)
}

#[test]
fn one_is_told_as_upstream_tells_it() {
    let mut correlator = Correlator::new("node");
    let telling = correlator.judge(&word(1, "no"), at(0)).unwrap();
    assert_eq!(telling.patch, None);
    assert_eq!(telling.namespace, "n");
    let suffix = telling.name.strip_prefix("p.").unwrap();
    assert!(suffix.len() == 16 && suffix.bytes().all(|b| b.is_ascii_hexdigit()));
    assert_eq!(
        telling.event,
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": { "name": telling.name, "namespace": "n" },
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
    // The same word in another life has the same name.
    let again = Correlator::new("node")
        .judge(&word(1, "no"), at(9))
        .unwrap();
    assert_eq!(again.name, telling.name);
}

#[test]
fn of_the_node_it_is_in_the_namespace_default() {
    let mut word = word(1, "Node n status is now: NodeReady");
    word.about = About {
        kind: "Node".to_owned(),
        namespace: String::new(),
        name: "n".into(),
        uid: "n".into(),
    };
    word.part = String::new();
    let telling = Correlator::new("n").judge(&word, at(0)).unwrap();
    assert_eq!(telling.namespace, "default");
    let object = json!({ "kind": "Node", "apiVersion": "v1", "name": "n", "uid": "n" });
    assert_eq!(telling.event["involvedObject"], object);
}

#[test]
fn the_same_counts_up() {
    let mut correlator = Correlator::new("node");
    let first = correlator.judge(&word(1, "no"), at(0)).unwrap();
    let second = correlator.judge(&word(2, "no"), at(1)).unwrap();
    assert_eq!(second.name, first.name);
    assert_eq!(
        second.event["firstTimestamp"],
        first.event["firstTimestamp"]
    );
    assert_eq!(
        second.patch,
        Some(json!({ "count": 2, "lastTimestamp": "2026-01-01T00:00:02Z", "message": "no" }))
    );
    let mut elsewhere = word(3, "no");
    elsewhere.part = "spec.containers{other}".into();
    assert_eq!(correlator.judge(&elsewhere, at(2)).unwrap().patch, None);
}

#[test]
fn from_the_tenth_on_the_similar_are_one() {
    let mut correlator = Correlator::new("node");
    let mut tell = |id: u32, second| correlator.judge(&word(id, &format!("no {id}")), at(second));
    for id in 1..10 {
        assert_eq!(tell(id, 0).unwrap().event["message"], format!("no {id}"));
    }
    let tenth = tell(10, 1).unwrap();
    assert_eq!(
        tenth.event["message"],
        "(combined from similar events): no 10"
    );
    assert_eq!(tenth.patch, None);
    let next = tell(11, 2).unwrap();
    assert_eq!(next.name, tenth.name);
    assert_eq!(next.patch.unwrap()["count"], 2);
    // After ten quiet minutes they are told one by one again.
    assert_eq!(tell(12, 700).unwrap().event["message"], "no 12");
}

#[test]
fn who_says_too_much_is_not_heard() {
    let mut correlator = Correlator::new("node");
    let told = (1..=40).filter(|id| correlator.judge(&word(*id, "no"), at(1)).is_some());
    assert_eq!(told.count(), 25);
    assert!(correlator.judge(&word(41, "no"), at(290)).is_none());
    let next = correlator.judge(&word(42, "no"), at(302)).unwrap();
    assert_eq!(next.patch.unwrap()["count"], 42, "those not told count");
    let mut other = word(50, "no");
    other.about.name = "q".into();
    assert!(correlator.judge(&other, at(302)).is_some());
}

#[test]
fn long_names_are_cut() {
    let name = name(&format!("{}.{}", "a".repeat(235), "b".repeat(20)), "id");
    assert_eq!(name.len(), 235 + 17);
    assert!(name.len() <= LONGEST_NAME && !name.contains(".."));
}
