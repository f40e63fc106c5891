//! When the status is written, and what of it.

use jiff::SignedDuration;
use proptest::prelude::*;

use super::super::patch;
use super::super::report::{Decision, Pace, Schedule};
use super::*;

#[test]
fn written_when_it_changes_and_at_the_report_frequency() {
    let pace = Pace {
        gather: SignedDuration::from_secs(10),
        report: SignedDuration::from_secs(300),
    };
    let mut schedule = Schedule::new(pace);
    let held = status(&settings(), &well(), &NodeStatus::default(), at(0));
    let same = |now| status(&settings(), &well(), &held, now);
    // Not written in this life: whatever it is.
    assert_eq!(
        schedule.decide(&held, &same(at(0)), false, at(0)),
        Decision::Write
    );
    schedule.written(false, 0.9, at(0));
    assert_eq!(
        schedule.decide(&held, &same(at(1)), false, at(1)),
        Decision::Wait(at(300))
    );
    assert_eq!(
        schedule.decide(&held, &same(at(300)), false, at(300)),
        Decision::Write
    );
    // Images wait for each other, everything else does not.
    let mut facts = well();
    facts.images.insert(
        "a".to_owned(),
        Image {
            names: vec![],
            bytes: 1,
        },
    );
    let more = |now| status(&settings(), &facts, &held, now);
    assert_eq!(
        schedule.decide(&held, &more(at(2)), false, at(2)),
        Decision::Wait(at(12))
    );
    assert_eq!(
        schedule.decide(&held, &more(at(5)), false, at(5)),
        Decision::Wait(at(12))
    );
    assert_eq!(
        schedule.decide(&held, &more(at(12)), false, at(12)),
        Decision::Write
    );
    facts.pressure.insert(Resource::Pids, pressure(true));
    let worse = status(&settings(), &facts, &held, at(3));
    assert_eq!(
        schedule.decide(&held, &worse, false, at(3)),
        Decision::Write
    );
    // A volume that comes into use is told at once, one that goes out of it later.
    let with = |volumes: &[&str]| {
        let volumes = volumes.iter().map(|name| (*name).to_owned()).collect();
        let facts = Facts {
            volumes_in_use: Some(volumes),
            ..well()
        };
        status(&settings(), &facts, &held, at(4))
    };
    assert!(patch::differs_at_once(&held, &with(&["v"])));
    assert!(!patch::differs_at_once(&with(&["v"]), &held));
    assert!(patch::differs(&with(&["v"]), &held));
    // Nodes that changed together do not report together.
    schedule.written(true, 1.0, at(20));
    assert_eq!(
        schedule.decide(&held, &same(at(21)), false, at(21)),
        Decision::Wait(at(470))
    );
}

/// What the API server does with a strategic merge patch of a status, for its own fields.
fn applied(held: &NodeStatus, patch: &Value) -> NodeStatus {
    fn merge(held: &mut Value, patch: &Value) {
        for (name, change) in patch.as_object().unwrap() {
            match (name.as_str(), change) {
                (_, Value::Null) => {
                    held.as_object_mut().unwrap().remove(name);
                }
                ("addresses", Value::Array(list)) => {
                    held[name] = list
                        .iter()
                        .filter(|a| a.get("$patch").is_none())
                        .cloned()
                        .collect();
                }
                ("conditions", Value::Array(list)) => {
                    let mut all = held[name].as_array().cloned().unwrap_or_default();
                    for condition in list {
                        match all
                            .iter_mut()
                            .find(|held| held["type"] == condition["type"])
                        {
                            Some(held) => merge(held, condition),
                            None => all.push(condition.clone()),
                        }
                    }
                    held[name] = all.into();
                }
                (_, Value::Object(_)) if held[name].is_object() => merge(&mut held[name], change),
                _ => held[name] = change.clone(),
            }
        }
    }
    let mut value = serde_json::to_value(held).unwrap();
    merge(&mut value, &patch["status"]);
    serde_json::from_value(value).unwrap()
}

fn any_facts() -> impl Strategy<Value = Facts> {
    let words = prop::option::of("[a-z]{1,3}");
    let runtime = prop::option::of((words.clone(), words)).prop_map(|runtime| {
        runtime.map(|(not_ready, network_not_ready)| Runtime {
            not_ready,
            network_not_ready,
            version: "x://1".to_owned(),
            ..Runtime::default()
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
    )
        .prop_map(
            |(runtime, pressures, images, images_heard, volumes_in_use)| Facts {
                runtime,
                silent_since: None,
                pressure: Resource::ALL
                    .into_iter()
                    .zip(pressures)
                    .filter_map(|(resource, under)| Some((resource, pressure(under?))))
                    .collect(),
                images: images
                    .into_iter()
                    .map(|(id, bytes)| {
                        (
                            id.clone(),
                            Image {
                                names: vec![id],
                                bytes,
                            },
                        )
                    })
                    .collect(),
                images_heard,
                volumes_in_use,
                csi_node: images_heard,
                addresses: images_heard.then(|| vec!["192.0.2.7".to_owned()]),
            },
        )
}

proptest! {
    #[test]
    fn a_written_patch_leaves_nothing_to_write(first in any_facts(), second in any_facts()) {
        let none = NodeStatus::default();
        let held = status(&settings(), &first, &none, at(0));
        let wanted = status(&settings(), &second, &held, at(30));
        let after = applied(&held, &patch::status(&held, &wanted, &BTreeMap::new()));
        prop_assert_eq!(&after, &wanted);
        let again = status(&settings(), &second, &after, at(40));
        prop_assert!(!patch::differs(&after, &again));
    }
}
