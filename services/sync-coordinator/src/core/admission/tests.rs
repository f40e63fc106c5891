//! Upstream's cases of who is let in, who is not, and who makes room.

use std::sync::Arc;

use polylet_model::node::Numbers;
use polylet_model::ports::HostPort;
use polylet_model::qos::QosClass;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::preempt::victims;
use super::{Verdict, judge};
use crate::core::room::{Demand, Holder, Ledger, NodeObject};
use crate::core::step::Step;
use crate::core::view::{Pressure, View};
use crate::core::wanted::Wanted;
use crate::core::world::{World, manifest, simple};

mod fits;
mod makes_room;
mod node_object;

const MI: i64 = 1 << 20;

fn numbers(entries: &[(&str, i64)]) -> Numbers {
    entries
        .iter()
        .map(|(name, number)| ((*name).to_owned(), *number))
        .collect()
}

fn demand(qos: QosClass, requests: &[(&str, i64)]) -> Demand {
    Demand {
        requests: numbers(requests),
        ports: Vec::new(),
        qos,
        priority: None,
        critical: false,
    }
}

fn holder(demand: Demand) -> Option<Holder> {
    Some(Holder {
        demand: Arc::new(demand),
        ending: false,
    })
}

/// A node of two CPUs, 1000 Mi and three pods, with one pod on it.
fn world(spec: Value) -> World {
    let mut world = World::new(spec);
    let room = &mut world.node.room;
    room.node_name = "n1".into();
    room.labels = [("disk".to_owned(), "ssd".to_owned())].into();
    room.allocatable = Some(numbers(&[
        ("cpu", 2000),
        ("memory", 1000 * MI),
        ("ephemeral-storage", 1000),
        ("hugepages-2Mi", 0),
        ("pods", 3),
    ]));
    let mut there = demand(QosClass::Guaranteed, &[("cpu", 1500), ("memory", 600 * MI)]);
    there.ports = vec![HostPort {
        port: 8080,
        protocol: "TCP".into(),
        ip: "0.0.0.0".into(),
    }];
    room.ledger.set("there", holder(there));
    world
}

fn asking(requests: Value) -> Value {
    let mut spec = simple("Always", &["a"]);
    spec["containers"][0]["resources"] = json!({ "requests": requests });
    spec
}

/// The world with its pod made critical, or with other metadata.
fn with(mut world: World, change: impl FnOnce(&mut k8s_openapi::api::core::v1::Pod)) -> World {
    let mut pod = world.wanted.manifest.to_pod();
    change(&mut pod);
    let manifest = polylet_model::Manifest::from_pod(pod).unwrap();
    world.wanted = Arc::new(Wanted::of(&manifest, &[]));
    world.restart();
    world
}

fn verdict(world: &World) -> Verdict {
    let view = View {
        pod: &world.pod,
        node: &world.node,
        now: world.now,
    };
    judge(&view, &world.wanted)
}

fn told(world: &World) -> (String, String) {
    match verdict(world) {
        Verdict::Refused(terminal) => {
            assert_eq!(terminal.phase, "Failed");
            let message = terminal.message.strip_prefix("Pod was rejected: ").unwrap();
            (terminal.reason, message.to_owned())
        }
        Verdict::Admitted => Default::default(),
        Verdict::Waits { victims } => ("waits".into(), victims.join(" ")),
        Verdict::Unsure { .. } => ("unsure".into(), String::new()),
    }
}

#[test]
fn what_was_let_in_stays_in() {
    let mut world = world(asking(json!({"cpu": "500m"})));
    world.settle();
    assert!(world.disk.as_ref().unwrap().demand.is_some());
    // No room at all, and none needed: neither after a restart nor without the containers.
    world.node.room.allocatable = Some(numbers(&[("cpu", 0), ("pods", 0)]));
    world.restart();
    assert_eq!(verdict(&world), Verdict::Admitted);
    world.settle();
    assert!(world.disk.as_ref().unwrap().terminal.is_none());
    // A node that was handed over has containers and no journal.
    world.disk = None;
    world.restart();
    assert_eq!(verdict(&world), Verdict::Admitted);
}

#[test]
fn a_refused_pod_starts_nothing_and_stays_refused() {
    let mut world = world(asking(json!({"cpu": "3"})));
    world.settle();
    let steps: Vec<_> = world.history.iter().collect();
    assert!(
        steps
            .iter()
            .all(|step| !matches!(step, Step::CreateSandbox { .. } | Step::ApplyVolumes)),
        "{steps:?}"
    );
    let kept = world.disk.clone().unwrap();
    assert_eq!(kept.terminal.as_ref().unwrap().reason, "OutOfcpu");
    assert!(kept.demand.is_none());
    world.node.room.allocatable = None;
    world.restart();
    world.settle();
    assert_eq!(world.disk.unwrap().terminal, kept.terminal);
}
