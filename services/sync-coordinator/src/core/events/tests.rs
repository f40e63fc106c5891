use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::core::step::StepFailure;
use crate::core::test_support::{TestEnv, at, manifest, simple};
use crate::core::view::ProbeFailure;

mod killing;

/// Plans once, collects the events, and executes the steps.
fn sync_once(env: &mut TestEnv, before: &mut Plan) -> Vec<(String, String, String)> {
    let plan = env.plan();
    let events = events(&env.view(), before, &plan, at(0)).into_iter();
    let events = events
        .map(|e| (e.field_path, e.reason, e.message))
        .collect();
    *before = plan;
    for step in env.start_steps() {
        env.finish(&step);
    }
    events
}

fn sync(env: &mut TestEnv, before: &mut Plan) -> Vec<(String, String, String)> {
    (0..12).flat_map(|_| sync_once(env, before)).collect()
}

fn event(field_path: &str, reason: &str, message: &str) -> (String, String, String) {
    (field_path.to_owned(), reason.to_owned(), message.to_owned())
}

#[test]
fn a_normal_start_has_no_events_of_decisions() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    assert_eq!(sync(&mut env, &mut Plan::default()), []);
    assert_eq!(env.running_names(), ["a"]);
}

#[test]
fn kills_and_back_offs_are_reported_once() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    let mut before = Plan::default();
    sync(&mut env, &mut before);
    let failure = ProbeFailure {
        startup: false,
        message: String::new(),
    };
    let id = env.running("a").unwrap();
    env.pod.probe_failures.insert(id, failure);
    let path = "spec.containers{a}";
    assert_eq!(
        sync(&mut env, &mut before),
        [event(
            path,
            "Killing",
            "Container a failed liveness probe, will be restarted"
        )]
    );
    // The kill of the first container is not counted, so this is the first crash.
    env.advance_clock(1);
    env.exit_container("a", 1);
    assert_eq!(sync(&mut env, &mut before), []);
    env.advance_clock(1);
    env.exit_container("a", 1);
    let back_off = "Back-off restarting failed container a in pod web_default(u1)";
    assert_eq!(
        sync(&mut env, &mut before),
        [event(path, "BackOff", back_off)]
    );
}

#[test]
fn a_network_that_is_not_ready_is_reported_again_and_again() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.node.network = Err("NetworkPluginNotReady: cni plugin not initialized".into());
    let mut before = Plan::default();
    let message = "network is not ready: container runtime network not ready: NetworkReady=false \
                   reason:NetworkPluginNotReady message:cni plugin not initialized";
    let expected = [event("", "NetworkNotReady", message)];
    assert_eq!(sync(&mut env, &mut before), expected);
    let start = env.now;
    for _ in 0..3 {
        env.advance_clock(9);
        assert_eq!(sync(&mut env, &mut before), []);
        assert!(before.wake_at.is_some_and(|at| at > env.now));
        env.advance_clock(1);
        assert_eq!(sync(&mut env, &mut before), expected);
    }
    assert_eq!(env.now.duration_since(start).as_secs(), 30);
    env.node.network = Ok(());
    assert_eq!(sync(&mut env, &mut before), []);
    assert_eq!(env.running_names(), ["a"]);
    assert_eq!(env.pod.network_reported_at, None);
}

#[test]
fn terminations_are_reported_with_their_reason() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    let mut before = Plan::default();
    sync(&mut env, &mut before);
    env.pod.eviction = Some(crate::core::admission::preempted(env.now));
    assert_eq!(
        sync(&mut env, &mut before),
        [
            event("", "Preempting", "Preempted in order to admit critical pod"),
            event("spec.containers{a}", "Killing", "Stopping container a"),
        ]
    );
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.node.pressure.disk = true;
    let rejected = sync(&mut env, &mut Plan::default());
    let message = "The node had condition: [DiskPressure]. ";
    assert_eq!(rejected, [event("", "Evicted", message)]);
    // An eviction has its event from the service that decides it.
    let mut env = TestEnv::new(simple("Always", &["a"]));
    let mut before = Plan::default();
    sync(&mut env, &mut before);
    env.pod.eviction = Some(PodTermination {
        reason: reason::EVICTED.into(),
        message: "The node was low on resource: memory. ".into(),
        ..crate::core::admission::preempted(env.now)
    });
    let killing = event("spec.containers{a}", "Killing", "Stopping container a");
    assert_eq!(sync(&mut env, &mut before), [killing]);
}

#[test]
fn image_pull_back_off_has_the_kubelets_messages() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    let (pull, mut before) = loop {
        let plan = env.plan();
        let steps = env.start_steps();
        let pull = steps
            .iter()
            .find(|s| matches!(s, Step::PullImage { .. }))
            .cloned();
        for step in steps.iter().filter(|s| Some(*s) != pull.as_ref()) {
            env.finish(step);
        }
        if let Some(pull) = pull {
            break (pull, plan);
        }
    };
    let failure = StepFailure {
        reason: "ErrImagePull".to_owned(),
        message: "no such \"host\": x".to_owned(),
        ..StepFailure::default()
    };
    env.fail(&pull, failure);
    assert_eq!(sync(&mut env, &mut before), []);
    env.advance_clock(3);
    let path = "spec.containers{a}";
    assert_eq!(
        sync(&mut env, &mut before),
        [
            event(path, "BackOff", "Back-off pulling image \"img-a:1\""),
            event(path, "Failed", "Error: ImagePullBackOff"),
        ]
    );
}

#[test]
fn a_resize_is_reported_from_start_to_completion() {
    let spec = |cpu: &str| -> Value {
        json!({"containers": [{"name": "a", "image": "img-a:1",
            "resources": {"requests": {"cpu": cpu}}}]})
    };
    let mut env = TestEnv::new(spec("1"));
    let mut before = Plan::default();
    sync(&mut env, &mut before);
    env.update_spec(&manifest(spec("2")));
    let events = sync(&mut env, &mut before);
    let reasons: Vec<&str> = events
        .iter()
        .map(|(_, reason, _)| reason.as_str())
        .collect();
    assert_eq!(reasons, ["ResizeStarted", "ResizeCompleted"]);
    assert_eq!(
        events[0].2,
        r#"Pod resize started: {"containers":[{"name":"a","resources":{"requests":{"cpu":"2"}}}],"generation":0}"#
    );
}

#[test]
fn failed_sync_is_reported_once_per_error() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    let mut before = Plan::default();
    sync(&mut env, &mut before);
    for error in ["timeout", "not found"] {
        env.runtime.inspect_error = error.into();
        env.relist();
        let message = format!("error determining status: {error}");
        let expected = [event("", "FailedSync", &message)];
        assert_eq!(sync(&mut env, &mut before), expected);
    }
    env.runtime.inspect_error.clear();
    env.relist();
    assert_eq!(sync(&mut env, &mut before), []);
}

#[test]
fn exceeded_grace_period_is_reported_once() {
    // One and a half grace periods, and at least ten seconds.
    for (eviction, own, timeout) in [(Some(1), 30, 10), (Some(20), 30, 30), (None, 30, 45)] {
        let mut spec = simple("Always", &["a"]);
        spec["terminationGracePeriodSeconds"] = own.into();
        let mut env = TestEnv::new(spec);
        let mut before = Plan::default();
        sync(&mut env, &mut before);
        let now = env.now;
        env.pod.eviction = Some(PodTermination {
            reason: reason::EVICTED.into(),
            message: "The node was low on resource: memory.".into(),
            phase: "Failed".into(),
            disruption_target: true,
            decided_at: now,
            grace_period: eviction,
        });
        // The eviction is stored; the stop starts and does not end.
        let decided = env.start_steps();
        decided.iter().for_each(|step| env.finish(step));
        let mut overdue_events = |env: &mut TestEnv| {
            let plan = env.plan();
            let events = events(&env.view(), &before, &plan, at(0));
            before = plan;
            env.start_steps();
            let overdue = events
                .into_iter()
                .filter(|n| n.reason == "ExceededGracePeriod");
            (overdue.count(), before.wake_at)
        };
        overdue_events(&mut env);
        env.advance_clock(timeout - 1);
        let (early, wake_at) = overdue_events(&mut env);
        assert_eq!(early, 0, "{eviction:?}");
        let overdue_at = now + SignedDuration::from_secs(timeout);
        assert!(wake_at.is_some_and(|at| at <= overdue_at), "{wake_at:?}");
        env.advance_clock(1);
        assert_eq!(overdue_events(&mut env).0, 1, "{eviction:?}");
        env.advance_clock(1);
        assert_eq!(overdue_events(&mut env).0, 0, "{eviction:?}");
    }
}
