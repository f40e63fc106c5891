//! When the status is written.

use jiff::SignedDuration;
use proptest::prelude::*;

use super::super::facts::NodeDevices;
use super::super::object::Registration;
use super::super::patch;
use super::super::report_schedule::{ReportDecision, ReportInterval, ReportSchedule};
use super::super::tracker::{NodeStep, NodeTracker};
use super::*;

#[test]
fn status_is_written_on_change_and_at_the_report_frequency() {
    let interval = ReportInterval {
        batch: SignedDuration::from_secs(10),
        report: SignedDuration::from_secs(300),
    };
    let mut schedule = ReportSchedule::new(interval);
    let current = status(&settings(), &healthy(), &NodeStatus::default(), at(0));
    let same = |now| status(&settings(), &healthy(), &current, now);
    // Always written after a start.
    assert_eq!(
        schedule.decide(&current, &same(at(0)), false, at(0)),
        ReportDecision::Write
    );
    schedule.on_written(false, 0.5, at(0));
    assert_eq!(
        schedule.decide(&current, &same(at(1)), false, at(1)),
        ReportDecision::Wait(at(300))
    );
    assert_eq!(
        schedule.decide(&current, &same(at(300)), false, at(300)),
        ReportDecision::Write
    );
    // Images are batched, everything else is not.
    let mut facts = healthy();
    facts.images.insert(
        "a".to_owned(),
        NodeImage {
            names: vec![],
            bytes: 1,
        },
    );
    let more = |now| status(&settings(), &facts, &current, now);
    assert_eq!(
        schedule.decide(&current, &more(at(2)), false, at(2)),
        ReportDecision::Wait(at(12))
    );
    assert_eq!(
        schedule.decide(&current, &more(at(5)), false, at(5)),
        ReportDecision::Wait(at(12))
    );
    assert_eq!(
        schedule.decide(&current, &more(at(12)), false, at(12)),
        ReportDecision::Write
    );
    facts
        .pressure
        .insert(PressureResource::Pids, pressure(true));
    let worse = status(&settings(), &facts, &current, at(3));
    assert_eq!(
        schedule.decide(&current, &worse, false, at(3)),
        ReportDecision::Write
    );
    // A volume that comes into use is urgent, one that goes out of use is not.
    let with = |volumes: &[&str]| {
        let volumes = volumes.iter().map(|name| (*name).to_owned()).collect();
        let facts = NodeFacts {
            volumes_in_use: Some(volumes),
            ..healthy()
        };
        status(&settings(), &facts, &current, at(4))
    };
    assert!(patch::differs_urgently(&current, &with(&["v"])));
    assert!(!patch::differs_urgently(&with(&["v"]), &current));
    assert!(patch::differs(&with(&["v"]), &current));
    // After a change the next report is shifted.
    schedule.on_written(true, 1.0, at(20));
    assert_eq!(
        schedule.decide(&current, &same(at(21)), false, at(21)),
        ReportDecision::Wait(at(470))
    );
}

#[test]
fn reports_after_a_start_or_a_change_are_spread_and_regular_ones_are_not() {
    let interval = ReportInterval {
        batch: SignedDuration::from_secs(10),
        report: SignedDuration::from_secs(300),
    };
    let current = status(&settings(), &healthy(), &NodeStatus::default(), at(0));
    let mut schedule = ReportSchedule::new(interval);
    // Whether the write changes more than heartbeats, when it is, and when the next one is due.
    for (changed, second, due) in [
        (false, 0, 420),
        (false, 420, 720),
        (true, 800, 1220),
        (false, 1220, 1520),
    ] {
        schedule.on_written(changed, 0.9, at(second));
        let decision = schedule.decide(&current, &current, false, at(second));
        assert_eq!(decision, ReportDecision::Wait(at(due)), "{second}");
    }
}

/// A healthy node that was registered at 0.
fn registered() -> NodeTracker {
    let interval = ReportInterval {
        batch: SignedDuration::from_secs(10),
        report: SignedDuration::from_secs(300),
    };
    let mut tracker = NodeTracker::new(settings(), Registration::default(), interval, at(0));
    tracker.facts = healthy();
    let NodeStep::Register(object) = tracker.next_step(at(0)) else {
        panic!("not registered");
    };
    tracker.on_registered(object, true, false, 0.5, at(0));
    tracker
}

#[test]
fn node_that_lost_pleg_is_not_ready_after_the_timeout_without_another_change() {
    let mut tracker = registered();
    tracker.facts.pleg_stale_since = Some(at(10) + SignedDuration::from_millis(500));
    let mut wait = |now| match tracker.next_step(now) {
        NodeStep::Wait(until) => until,
        _ => None,
    };
    // Heartbeats have whole seconds.
    assert_eq!(wait(at(11)), Some(at(191)));
    assert_eq!(wait(at(190)), Some(at(191)));
    let NodeStep::Write(write) = tracker.next_step(at(191)) else {
        panic!("not written");
    };
    assert!(is_ready(Some(&write.before)));
    let patch = write.patch.to_string();
    assert!(patch.contains("PLEG is not healthy"), "{patch}");
}

#[test]
fn message_of_an_outage_is_written_at_the_update_frequency_and_its_end_at_once() {
    let mut tracker = registered();
    tracker.facts.pleg_stale_since = Some(at(0) + SignedDuration::from_millis(500));
    // The next step, and whether the status was written. The watch reports what was written.
    let step = |tracker: &mut NodeTracker, now| match tracker.next_step(now) {
        NodeStep::Write(write) => {
            let node = desired_node(tracker, now);
            tracker.on_written(&write.before, write.changed, node.clone(), 0.5, now);
            tracker.handle_watched(Some(node), now);
            assert!(matches!(tracker.next_step(now), NodeStep::Wait(_)));
            true
        }
        _ => false,
    };
    // Other changes wake the controller each second.
    let written: Vec<_> = (1..230)
        .filter(|second| step(&mut tracker, at(*second)))
        .collect();
    assert_eq!(written, [181, 191, 201, 211, 221]);
    let current = tracker.node().and_then(|node| node.status.clone());
    let message = current.unwrap().conditions.unwrap().pop().unwrap().message;
    assert_eq!(
        message.as_deref(),
        Some("PLEG is not healthy: pleg was last seen active 3m40.5s ago; threshold is 3m0s")
    );
    // Without another change the controller wakes for it, too.
    let NodeStep::Wait(until) = tracker.next_step(at(230)) else {
        panic!("written too early");
    };
    assert_eq!(until, Some(at(231)));
    tracker.facts.pleg_stale_since = None;
    assert!(step(&mut tracker, at(230)));
    let NodeStep::Wait(until) = tracker.next_step(at(230)) else {
        panic!("written again");
    };
    assert_eq!(until, Some(at(530)));
}

#[test]
fn reasons_for_not_being_ready_are_batched() {
    let not_ready = |reason: &str| {
        let mut facts = healthy();
        facts.runtime.as_mut().unwrap().not_ready = Some(reason.to_owned());
        status(&settings(), &facts, &NodeStatus::default(), at(0))
    };
    let ready = status(&settings(), &healthy(), &NodeStatus::default(), at(0));
    for (current, desired, differs, urgent) in [
        (&not_ready("a"), &not_ready("a"), false, false),
        (&not_ready("a"), &not_ready("b"), true, false),
        (&ready, &not_ready("a"), true, true),
        (&not_ready("a"), &ready, true, true),
    ] {
        assert_eq!(patch::differs(current, desired), differs);
        assert_eq!(patch::differs_urgently(current, desired), urgent);
    }
}

/// The Node with the status that is desired at a time.
fn desired_node(tracker: &NodeTracker, now: Timestamp) -> Box<Node> {
    let mut node = tracker.node().unwrap().clone();
    let current = node.status.take().unwrap();
    node.status = Some(status(&settings(), &tracker.facts, &current, now));
    Box::new(node)
}

/// Applies a strategic merge patch of a status as the API server does.
fn applied(current: &NodeStatus, patch: &Value) -> NodeStatus {
    fn merge(current: &mut Value, patch: &Value) {
        for (name, change) in patch.as_object().unwrap() {
            match (name.as_str(), change) {
                (_, Value::Null) => {
                    current.as_object_mut().unwrap().remove(name);
                }
                ("addresses", Value::Array(list)) => {
                    current[name] = list
                        .iter()
                        .filter(|a| a.get("$patch").is_none())
                        .cloned()
                        .collect();
                }
                ("conditions", Value::Array(list)) => {
                    let mut all = current[name].as_array().cloned().unwrap_or_default();
                    for condition in list {
                        match all
                            .iter_mut()
                            .find(|current| current["type"] == condition["type"])
                        {
                            Some(current) => merge(current, condition),
                            None => all.push(condition.clone()),
                        }
                    }
                    current[name] = all.into();
                }
                (_, Value::Object(_)) if current[name].is_object() => {
                    merge(&mut current[name], change)
                }
                _ => current[name] = change.clone(),
            }
        }
    }
    let mut value = serde_json::to_value(current).unwrap();
    merge(&mut value, &patch["status"]);
    serde_json::from_value(value).unwrap()
}

fn any_facts() -> impl Strategy<Value = NodeFacts> {
    let reasons = prop::option::of("[a-z]{1,3}");
    let runtime = prop::option::of((reasons.clone(), reasons)).prop_map(|runtime| {
        runtime.map(|(not_ready, network_not_ready)| NodeRuntimeStatus {
            not_ready,
            network_not_ready,
            version: "x://1".to_owned(),
            ..NodeRuntimeStatus::default()
        })
    });
    let pressures = prop::collection::vec(prop::option::of(any::<bool>()), 3);
    let images = prop::collection::btree_map("[a-c]", 0..3_u64, 0..3);
    (
        runtime,
        pressures,
        images,
        any::<bool>(),
        prop::option::of(prop::collection::vec("[a-c]", 0..2)),
        (
            prop::collection::btree_map("example.com/[a-c]", (0..3_i64, 0..3_i64), 0..3),
            any::<bool>(),
        ),
    )
        .prop_map(
            |(runtime, pressures, images, images_synced, volumes_in_use, devices)| NodeFacts {
                runtime,
                pleg_stale_since: None,
                pressure: PressureResource::ALL
                    .into_iter()
                    .zip(pressures)
                    .filter_map(|(resource, active)| Some((resource, pressure(active?))))
                    .collect(),
                images: images
                    .into_iter()
                    .map(|(id, bytes)| {
                        (
                            id.clone(),
                            NodeImage {
                                names: vec![id],
                                bytes,
                            },
                        )
                    })
                    .collect(),
                images_synced,
                volumes_in_use,
                devices: devices
                    .0
                    .into_iter()
                    .map(|(name, (capacity, allocatable))| {
                        let devices = NodeDevices {
                            capacity,
                            allocatable,
                        };
                        (name, devices)
                    })
                    .collect(),
                devices_synced: devices.1,
                has_csi_node: images_synced,
                addresses: images_synced.then(|| vec!["192.0.2.7".to_owned()]),
            },
        )
}

proptest! {
    #[test]
    fn one_patch_brings_the_status_up_to_date(first in any_facts(), second in any_facts()) {
        let none = NodeStatus::default();
        let current = status(&settings(), &first, &none, at(0));
        let desired = status(&settings(), &second, &current, at(30));
        let after = applied(&current, &patch::status(&current, &desired, &BTreeMap::new()));
        prop_assert_eq!(&after, &desired);
        let again = status(&settings(), &second, &after, at(40));
        prop_assert!(!patch::differs(&after, &again));
    }
}
