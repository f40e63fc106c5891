use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::core::learn::Trouble;
use crate::core::view::Unwell;
use crate::core::world::{World, at, manifest, simple};

/// Plans once, tells, begins, and carries out what was begun.
fn round(world: &mut World, before: &mut Plan) -> Vec<(String, String, String)> {
    let plan = world.plan();
    let view = View {
        pod: &world.pod,
        node: &world.node,
        now: world.now,
    };
    let told = of(&view, before, &plan, at(0)).into_iter();
    let told = told.map(|n| (n.part, n.reason, n.message)).collect();
    *before = plan;
    for step in world.begin() {
        world.finish(&step);
    }
    told
}

fn rounds(world: &mut World, before: &mut Plan) -> Vec<(String, String, String)> {
    (0..12).flat_map(|_| round(world, before)).collect()
}

fn told(part: &str, reason: &str, message: &str) -> (String, String, String) {
    (part.to_owned(), reason.to_owned(), message.to_owned())
}

#[test]
fn a_good_start_is_told_by_its_acts_alone() {
    let mut world = World::new(simple("Always", &["a"]));
    assert_eq!(rounds(&mut world, &mut Plan::default()), []);
    assert_eq!(world.all_running(), ["a"]);
}

#[test]
fn kills_and_back_offs_are_told_once() {
    let mut world = World::new(simple("Always", &["a"]));
    let mut before = Plan::default();
    rounds(&mut world, &mut before);
    let unwell = Unwell {
        startup: false,
        message: String::new(),
    };
    let id = world.running("a").unwrap();
    world.pod.unwell.insert(id, unwell);
    let part = "spec.containers{a}";
    assert_eq!(
        rounds(&mut world, &mut before),
        [told(
            part,
            "Killing",
            "Container a failed liveness probe, will be restarted"
        )]
    );
    world.pass(1);
    world.ends("a", 1);
    let back_off = "Back-off restarting failed container a in pod web_default(u1)";
    assert_eq!(
        rounds(&mut world, &mut before),
        [told(part, "BackOff", back_off)]
    );
}

/// What is told of stops of a pod with a sidecar `s` and containers `a` and `b`, when this has happened.
fn stops(policy: &str, happens: impl FnOnce(&mut World)) -> Vec<(String, String, String)> {
    let rules = json!([{ "action": "RestartAllContainers",
        "exitCodes": { "operator": "In", "values": [42] } }]);
    let mut world = World::new(json!({
        "restartPolicy": policy, "terminationGracePeriodSeconds": 30,
        "initContainers": [{ "name": "s", "image": "s:1", "restartPolicy": "Always" }],
        "containers": [
            { "name": "a", "image": "a:1", "restartPolicyRules": rules, "restartPolicy": policy },
            { "name": "b", "image": "b:1" },
        ],
    }));
    let mut before = Plan::default();
    rounds(&mut world, &mut before);
    happens(&mut world);
    let mut told = rounds(&mut world, &mut before);
    told.retain(|(_, reason, _)| reason == "Killing");
    told
}

#[test]
fn stops_are_told_in_upstreams_words() {
    let unwell = |name: &'static str, startup: bool| {
        move |world: &mut World| {
            let id = world.running(name).unwrap();
            let message = String::new();
            let unwell = Unwell { startup, message };
            world.pod.unwell.insert(id, unwell);
        }
    };
    let changes = |at: &'static str, value: Value| {
        move |world: &mut World| {
            let mut spec = serde_json::to_value(world.wanted.manifest.spec()).unwrap();
            *spec.pointer_mut(at).unwrap() = value;
            world.wanted = Arc::new(super::Wanted::of(&manifest(spec), &[]));
            world.pod.wanted = Some(Arc::clone(&world.wanted));
        }
    };
    let lost = |name: &'static str| {
        move |world: &mut World| {
            let mut all = world.runtime.containers.iter_mut();
            all.find(|c| c.name == name).unwrap().phase = observed::Phase::Unknown;
            world.hear();
        }
    };
    let (a, s) = ("spec.containers{a}", "spec.initContainers{s}");
    for (policy, happens, part, words) in [
        (
            "Always",
            Box::new(unwell("a", true)) as Box<dyn FnOnce(&mut World)>,
            a,
            "Container a failed startup probe, will be restarted",
        ),
        (
            "Never",
            Box::new(unwell("a", false)),
            a,
            "Container a failed liveness probe",
        ),
        (
            "Always",
            Box::new(unwell("s", true)),
            s,
            "Init container s failed startup probe",
        ),
        (
            "Never",
            Box::new(unwell("s", false)),
            s,
            "Init container s failed liveness probe",
        ),
        (
            "Never",
            Box::new(changes("/containers/0/image", "a:2".into())),
            a,
            "Container a definition changed, will be restarted",
        ),
        (
            "Always",
            Box::new(changes("/initContainers/0/image", "s:2".into())),
            s,
            "Init container s definition changed",
        ),
        (
            "Always",
            Box::new(lost("a")),
            a,
            "Container is in \"unknown\" state, try killing it before restart",
        ),
        (
            "Always",
            Box::new(lost("s")),
            s,
            "Init container is in \"unknown\" state, try killing it before restart",
        ),
        (
            "Never",
            Box::new(|world: &mut World| world.ends("a", 42)),
            s,
            "killing",
        ),
        (
            "Never",
            Box::new(|world: &mut World| {
                world.ends("a", 1);
                world.ends("b", 1);
            }),
            s,
            "Stopping container s",
        ),
        (
            "Never",
            Box::new(move |world: &mut World| {
                world.ends("b", 0);
                unwell("a", false)(world);
            }),
            a,
            "Stopping container a",
        ),
    ] {
        let expected = told(part, "Killing", words);
        let told = stops(policy, happens);
        let of_part: Vec<_> = told.into_iter().filter(|told| told.0 == part).collect();
        assert_eq!(of_part.first(), Some(&expected));
    }
}

#[test]
fn a_restart_for_a_resize_is_told_without_what_follows() {
    let spec = |memory: &str| -> Value {
        json!({"containers": [{"name": "a", "image": "img-a:1",
            "resizePolicy": [{ "resourceName": "memory", "restartPolicy": "RestartContainer" }],
            "resources": {"requests": {"memory": memory}}}]})
    };
    let mut world = World::new(spec("1Mi"));
    let mut before = Plan::default();
    rounds(&mut world, &mut before);
    world.wanted = Arc::new(super::Wanted::of(&manifest(spec("2Mi")), &[]));
    world.pod.wanted = Some(Arc::clone(&world.wanted));
    let mut heard = rounds(&mut world, &mut before);
    heard.retain(|(_, reason, _)| reason == "Killing");
    let words = "Container a resize requires restart";
    assert_eq!(heard, [told("spec.containers{a}", "Killing", words)]);
}

#[test]
fn ends_are_told_by_their_reason() {
    let mut world = World::new(simple("Always", &["a"]));
    let mut before = Plan::default();
    rounds(&mut world, &mut before);
    let order = crate::core::admission::preempted(world.now);
    world.pod.order = Some(order);
    assert_eq!(
        rounds(&mut world, &mut before),
        [
            told("", "Preempting", "Preempted in order to admit critical pod"),
            told("spec.containers{a}", "Killing", "Stopping container a"),
        ]
    );
    let mut world = World::new(simple("Always", &["a"]));
    world.node.pressure.disk = true;
    let refused = rounds(&mut world, &mut Plan::default());
    let words = "The node had condition: [DiskPressure]. ";
    assert_eq!(refused, [told("", "Evicted", words)]);
}

#[test]
fn failed_pulls_are_told_with_upstreams_words() {
    let mut world = World::new(simple("Always", &["a"]));
    let (pull, mut before) = loop {
        let plan = world.plan();
        let steps = world.begin();
        let pull = steps
            .iter()
            .find(|s| matches!(s, Step::PullImage { .. }))
            .cloned();
        for step in steps.iter().filter(|s| Some(*s) != pull.as_ref()) {
            world.finish(step);
        }
        if let Some(pull) = pull {
            break (pull, plan);
        }
    };
    let trouble = Trouble {
        reason: "ErrImagePull".to_owned(),
        message: "no such \"host\": x".to_owned(),
        ..Trouble::default()
    };
    world.fail(&pull, trouble);
    assert_eq!(rounds(&mut world, &mut before), []);
    world.pass(3);
    let part = "spec.containers{a}";
    assert_eq!(
        rounds(&mut world, &mut before),
        [
            told(part, "BackOff", "Back-off pulling image \"img-a:1\""),
            told(part, "Failed", "Error: ImagePullBackOff"),
        ]
    );
}

#[test]
fn a_resize_is_told_from_start_to_end() {
    let spec = |cpu: &str| -> Value {
        json!({"containers": [{"name": "a", "image": "img-a:1",
            "resources": {"requests": {"cpu": cpu}}}]})
    };
    let mut world = World::new(spec("1"));
    let mut before = Plan::default();
    rounds(&mut world, &mut before);
    world.wanted = Arc::new(super::Wanted::of(&manifest(spec("2")), &[]));
    world.pod.wanted = Some(Arc::clone(&world.wanted));
    let heard = rounds(&mut world, &mut before);
    let reasons: Vec<&str> = heard.iter().map(|(_, reason, _)| reason.as_str()).collect();
    assert_eq!(reasons, ["ResizeStarted", "ResizeCompleted"]);
    assert_eq!(
        heard[0].2,
        r#"Pod resize started: {"containers":[{"name":"a","resources":{"requests":{"cpu":"2"}}}],"generation":0}"#
    );
}

#[test]
fn a_pod_that_the_runtime_does_not_tell_of_is_told_once_for_each_reason() {
    let mut world = World::new(simple("Always", &["a"]));
    let mut before = Plan::default();
    rounds(&mut world, &mut before);
    for why in ["it hangs", "it is gone"] {
        world.runtime.doubt = why.into();
        world.hear();
        let message = format!("error determining status: {why}");
        let expected = [told("", "FailedSync", &message)];
        assert_eq!(rounds(&mut world, &mut before), expected);
    }
    world.runtime.doubt.clear();
    world.hear();
    assert_eq!(rounds(&mut world, &mut before), []);
}

#[test]
fn a_pod_that_was_put_out_and_does_not_go_is_told_once() {
    // Half as long again as the grace, and ten seconds at least.
    for (grace, own, patience) in [(Some(1), 30, 10), (Some(20), 30, 30), (None, 30, 45)] {
        let mut spec = simple("Always", &["a"]);
        spec["terminationGracePeriodSeconds"] = own.into();
        let mut world = World::new(spec);
        let mut before = Plan::default();
        rounds(&mut world, &mut before);
        let now = world.now;
        world.pod.order = Some(Terminal {
            reason: reason::EVICTED.into(),
            message: "The node was low on resource: memory.".into(),
            phase: "Failed".into(),
            disruption_target: true,
            decided_at: now,
            grace,
        });
        // Its end is decided, and its stop begins and does not end.
        let decided = world.begin();
        decided.iter().for_each(|step| world.finish(step));
        let mut look = |world: &mut World| {
            let plan = world.plan();
            let view = View {
                pod: &world.pod,
                node: &world.node,
                now: world.now,
            };
            let told = of(&view, &before, &plan, at(0));
            before = plan;
            world.begin();
            let late = told
                .into_iter()
                .filter(|n| n.reason == "ExceededGracePeriod");
            (late.count(), before.wake_at)
        };
        look(&mut world);
        world.pass(patience - 1);
        let (early, wake_at) = look(&mut world);
        assert_eq!(early, 0, "{grace:?}");
        let late = now + SignedDuration::from_secs(patience);
        assert!(wake_at.is_some_and(|at| at <= late), "{wake_at:?}");
        world.pass(1);
        assert_eq!(look(&mut world).0, 1, "{grace:?}");
        world.pass(1);
        assert_eq!(look(&mut world).0, 0, "{grace:?}");
    }
}
