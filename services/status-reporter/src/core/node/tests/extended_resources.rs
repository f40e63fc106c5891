//! Extended resources: those of device plugins, and those that administrators add by hand.

use super::super::facts::NodeDevices;
use super::super::report_schedule::{ReportDecision, ReportInterval, ReportSchedule};
use super::*;

/// Facts with devices as device-manager serves them; `None` before it has synced.
fn with_devices(devices: Option<&[(&str, i64, i64)]>) -> NodeFacts {
    let all = devices.into_iter().flatten();
    let all = all.map(|(name, capacity, allocatable)| {
        let devices = NodeDevices {
            capacity: *capacity,
            allocatable: *allocatable,
        };
        (format!("example.com/{name}"), devices)
    });
    NodeFacts {
        devices: all.collect(),
        devices_synced: devices.is_some(),
        ..healthy()
    }
}

/// A status with these extended resources, in capacity and allocatable.
fn written(capacity: &[(&str, &str)], allocatable: &[(&str, &str)]) -> NodeStatus {
    let list = |resources: &[(&str, &str)]| -> Value {
        let own = [("cpu".to_owned(), "1".into())].into_iter();
        let resources = resources.iter();
        let resources =
            resources.map(|(name, amount)| (format!("example.com/{name}"), (*amount).into()));
        Value::Object(own.chain(resources).collect())
    };
    serde_json::from_value(json!({
        "capacity": list(capacity), "allocatable": list(allocatable),
    }))
    .unwrap()
}

/// The extended resources of a status: `name=capacity/allocatable`.
fn extended(status: &NodeStatus) -> Vec<String> {
    let amount = |list: &Option<BTreeMap<String, _>>, name: &String| {
        let list: &BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity> =
            list.as_ref().unwrap();
        list.get(name).map_or("-".to_owned(), |it| it.0.clone())
    };
    let (capacity, allocatable) = (&status.capacity, &status.allocatable);
    let lists = [capacity, allocatable].into_iter().flatten();
    let names: std::collections::BTreeSet<&String> = lists.flat_map(BTreeMap::keys).collect();
    let names = names.into_iter().filter(|name| name.contains('/'));
    names
        .map(|name| {
            let short = name.trim_start_matches("example.com/");
            let (all, free) = (amount(capacity, name), amount(allocatable, name));
            format!("{short}={all}/{free}")
        })
        .collect()
}

#[test]
fn devices_are_capacity_and_healthy_ones_allocatable() {
    type Amounts = &'static [(&'static str, &'static str)];
    type Devices = Option<&'static [(&'static str, i64, i64)]>;
    let cases: [(&str, Amounts, Amounts, Devices, &[&str]); 10] = [
        ("first sight", &[], &[], Some(&[("x", 2, 2)]), &["x=2/2"]),
        (
            "an unhealthy device",
            &[("x", "2")],
            &[("x", "2")],
            Some(&[("x", 2, 1)]),
            &["x=2/1"],
        ),
        (
            "a plugin that is gone",
            &[("x", "2")],
            &[("x", "2")],
            Some(&[("x", 0, 0)]),
            &["x=0/0"],
        ),
        (
            "a device resource changed by hand",
            &[("x", "9")],
            &[("x", "9")],
            Some(&[("x", 2, 1)]),
            &["x=2/1"],
        ),
        (
            "added by hand, beside devices",
            &[("hand", "7")],
            &[],
            Some(&[("x", 2000, 1999)]),
            &["hand=7/7", "x=2k/1999"],
        ),
        ("removed by hand", &[], &[("hand", "7")], Some(&[]), &[]),
        (
            "not synced: what was written stays",
            &[("x", "2"), ("hand", "7")],
            &[("x", "1"), ("hand", "7")],
            None,
            &["hand=7/7", "x=2/1"],
        ),
        (
            "not synced, and zero",
            &[("x", "0")],
            &[("x", "0")],
            None,
            &["x=0/0"],
        ),
        (
            "not synced, and added by hand",
            &[("hand", "7")],
            &[],
            None,
            &["hand=7/7"],
        ),
        (
            "not synced, and removed by hand",
            &[],
            &[("hand", "7")],
            None,
            &[],
        ),
    ];
    for (case, capacity, allocatable, devices, expected) in cases {
        let current = written(capacity, allocatable);
        let desired = status(&settings(), &with_devices(devices), &current, at(0));
        assert_eq!(extended(&desired), expected, "{case}");
        let again = status(&settings(), &with_devices(devices), &desired, at(1));
        assert!(!patch::differs(&desired, &again), "{case}");
    }
}

#[test]
fn devices_served_before_the_list_is_complete_have_no_effect() {
    let mut facts = with_devices(Some(&[("x", 0, 0)]));
    facts.devices_synced = false;
    let current = written(&[("x", "2")], &[("x", "1")]);
    let desired = status(&settings(), &facts, &current, at(0));
    assert_eq!(extended(&desired), ["x=2/1"]);
}

#[test]
fn extended_resources_of_another_machine_are_zeroed_once() {
    let mut own = settings();
    own.info.machine_id = "new".to_owned();
    for (case, wrote, devices, expected) in [
        ("the same machine", "new", None, &["hand=7/7", "x=2/1"][..]),
        ("unknown", "", None, &["hand=7/7", "x=2/1"]),
        ("another one", "old", None, &["hand=0/0", "x=0/0"]),
        (
            "another one, and devices are known",
            "old",
            Some(&[("x", 3, 3)][..]),
            &["hand=0/0", "x=3/3"],
        ),
    ] {
        let mut current = written(&[("x", "2"), ("hand", "7")], &[("x", "1"), ("hand", "7")]);
        current.node_info.get_or_insert_default().machine_id = wrote.to_owned();
        let facts = with_devices(devices);
        let mut desired = status(&own, &facts, &current, at(0));
        assert_eq!(extended(&desired), expected, "{case}");
        // Other resources are this machine's.
        assert_eq!(desired.allocatable.as_ref().unwrap()["cpu"].0, "1500m");
        // What an administrator adds afterwards stays.
        let capacity = desired.capacity.as_mut().unwrap();
        capacity.get_mut("example.com/hand").unwrap().0 = "5".to_owned();
        let allocatable = desired.allocatable.as_mut().unwrap();
        allocatable.remove("example.com/hand");
        let patched = extended(&status(&own, &facts, &desired, at(1)));
        assert_eq!(patched[0], "hand=5/5", "{case}");
    }
    // Without an id of its own, no machine is another one.
    let mut current = written(&[("x", "2")], &[("x", "2")]);
    current.node_info.get_or_insert_default().machine_id = "old".to_owned();
    let desired = status(&settings(), &with_devices(None), &current, at(0));
    assert_eq!(extended(&desired), ["x=2/2"]);
}

#[test]
fn changes_of_devices_are_written_at_once() {
    let second = jiff::SignedDuration::from_secs(1);
    let mut schedule = ReportSchedule::new(ReportInterval {
        batch: second * 10,
        report: second * 300,
    });
    let devices = |devices: &[(&str, i64, i64)]| with_devices(Some(devices));
    let none = NodeStatus::default();
    let current = status(&settings(), &devices(&[("x", 2, 2)]), &none, at(0));
    schedule.on_written(true, 0.5, at(0));
    let mut decide = |devices: &NodeFacts| {
        let desired = status(&settings(), devices, &current, at(1));
        schedule.decide(&current, &desired, false, at(1))
    };
    let same = decide(&devices(&[("x", 2, 2)]));
    assert!(matches!(same, ReportDecision::Wait(_)), "{same:?}");
    assert_eq!(decide(&devices(&[("x", 2, 1)])), ReportDecision::Write);
    assert_eq!(decide(&devices(&[("x", 0, 0)])), ReportDecision::Write);
    let more = devices(&[("x", 2, 2), ("y", 1, 1)]);
    assert_eq!(decide(&more), ReportDecision::Write);
}
