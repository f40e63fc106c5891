//! Which containers, sandboxes and files of a pod are removed before the pod is.

use polylet_model::constants::{phase, reason};

use crate::core::checkpoint::PodTermination;
use crate::core::plan::SyncPhase;
use crate::core::runtime_state::ContainerState;
use crate::core::step::{Step, StepKey};
use crate::core::test_support::{TestEnv, at, simple};

fn terminated_for(reason: &str) -> TestEnv {
    let mut env = TestEnv::new(simple("Always", &["a", "b"]));
    env.run_until_idle();
    env.pod.eviction = Some(PodTermination {
        reason: reason.into(),
        message: String::new(),
        phase: phase::FAILED.into(),
        disruption_target: true,
        decided_at: at(0),
        grace_period: None,
    });
    env.run_until_idle();
    assert_eq!(env.plan().phase, SyncPhase::Terminated);
    env
}

#[test]
fn evicted_and_preempted_pods_lose_everything() {
    for (reason, removed) in [
        (reason::EVICTED, true),
        (reason::PREEMPTING, true),
        (reason::DEADLINE_EXCEEDED, false),
    ] {
        let mut env = terminated_for(reason);
        assert_eq!(
            env.runtime.containers.len(),
            2,
            "{reason}: ends are published first"
        );
        env.advance_clock(2);
        env.run_until_idle();
        assert_eq!(env.runtime.is_empty(), removed, "{reason}");
        let plan = env.plan();
        assert_eq!(plan.phase, SyncPhase::Terminated, "{reason}");
        assert!(!plan.forget, "{reason}");
        let position = |matches: fn(&Step) -> bool| env.history.iter().position(matches);
        let files = position(|step| matches!(step, Step::RemoveFiles));
        let sandbox = position(|step| matches!(step, Step::RemoveSandbox { .. }));
        assert_eq!(files.is_some(), removed, "{reason}: logs");
        assert!(files <= sandbox, "{reason}: sandboxes go last");
        let done = env.history.len();
        env.restart_process();
        env.run_until_idle();
        assert_eq!(env.history.len(), done, "{reason}: nothing left to do");
        env.remove();
        env.run_until_idle();
        assert_eq!(env.plan().phase, SyncPhase::CleanedUp, "{reason}");
    }
}

#[test]
fn a_clock_set_back_does_not_keep_evicted_containers() {
    let mut env = terminated_for(reason::EVICTED);
    env.advance_clock(-3600);
    env.run_until_idle();
    assert!(env.runtime.is_empty());
}

#[test]
fn a_reclaim_removes_what_had_ended_of_terminated_pods() {
    for (requested, removed) in [
        (None, false),
        (Some(4), false),
        (Some(5), true),
        (Some(6), true),
    ] {
        let mut env = TestEnv::new(simple("Never", &["a"]));
        env.run_until_idle();
        env.advance_clock(5);
        env.exit_container("a", 1);
        env.run_until_idle();
        assert_eq!(env.plan().phase, SyncPhase::Terminated);
        env.node.container_reclaim = requested.map(at);
        env.run_until_idle();
        assert_eq!(env.runtime.is_empty(), removed, "{requested:?}");
        let keys: Vec<StepKey> = env.history.iter().map(Step::key).collect();
        assert!(!keys.contains(&StepKey::RemoveFiles), "logs stay");
        assert_eq!(env.plan().phase, SyncPhase::Terminated);
    }
}

#[test]
fn a_reclaim_keeps_the_last_ended_container_of_a_running_pod() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.exit_container("a", 1);
    env.node.container_reclaim = Some(at(1_000));
    env.run_until_idle();
    let states: Vec<_> = env.runtime.containers.iter().map(|c| c.state).collect();
    assert_eq!(states, [ContainerState::Running, ContainerState::Exited]);
}

#[test]
fn superseded_containers_are_removed() {
    use ContainerState::{Created, Exited, Running};
    for (before, after) in [
        (&[Running][..], &[Running][..]),
        (&[Exited, Running], &[Exited, Running]),
        (&[Exited, Exited, Running], &[Exited, Running]),
        (&[Created, Running], &[Running]),
        (&[Created, Exited, Running], &[Exited, Running]),
        (&[Exited, Created, Running], &[Exited, Running]),
    ] {
        let mut env = TestEnv::new(simple("Always", &["a"]));
        env.run_until_idle();
        let template = env.runtime.containers.remove(0);
        for (attempt, state) in (0..).zip(before) {
            let mut container = template.clone();
            (container.attempt, container.state) = (attempt, *state);
            if *state != Running {
                container.id = format!("old{attempt}");
            }
            env.runtime.containers.insert(0, container);
        }
        env.relist();
        env.run_until_idle();
        let left: Vec<_> = env
            .runtime
            .containers
            .iter()
            .rev()
            .map(|c| c.state)
            .collect();
        assert_eq!(left, after, "{before:?}");
    }
}

#[test]
fn the_last_ended_container_stays_until_the_next_end_was_seen() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    let ended = |env: &TestEnv| {
        let containers = env.runtime.containers.iter();
        containers
            .filter(|container| container.state == ContainerState::Exited)
            .count()
    };
    env.exit_container("a", 1);
    env.run_until_idle();
    env.advance_clock(60);
    env.exit_container("a", 1);
    env.run_until_idle();
    assert_eq!(ended(&env), 2, "statuses may still name the first one");
    let wake_at = env.plan().wake_at;
    assert!(
        wake_at.is_some_and(|wake_at| wake_at <= at(62)),
        "{wake_at:?}"
    );
    env.advance_clock(2);
    env.run_until_idle();
    assert_eq!(ended(&env), 1);
}

#[test]
fn a_container_that_was_never_started_stays_while_it_is_the_last() {
    let mut env = TestEnv::new(simple("Never", &["a", "b"]));
    env.run_until_idle();
    for container in &mut env.runtime.containers {
        if container.name == "b" {
            container.state = ContainerState::Created;
        }
    }
    env.pod.checkpoint.termination = Some(PodTermination::completed(at(0), false));
    env.relist();
    env.run_until_idle();
    assert_eq!(env.plan().phase, SyncPhase::Terminated);
    assert_eq!(env.runtime.containers.len(), 2);
    env.node.container_reclaim = Some(at(0));
    env.run_until_idle();
    assert!(env.runtime.is_empty());
}

#[test]
fn old_sandboxes_of_a_terminated_pod_are_removed() {
    let mut env = TestEnv::new(simple("Never", &["a"]));
    env.run_until_idle();
    let mut old = env.runtime.sandboxes[0].clone();
    (old.id, old.ready) = ("old".into(), false);
    env.runtime.sandboxes[0].attempt = 1;
    env.runtime.sandboxes.push(old);
    env.exit_container("a", 0);
    env.run_until_idle();
    assert_eq!(env.plan().phase, SyncPhase::Terminated);
    let left: Vec<_> = env.runtime.sandboxes.iter().map(|s| s.attempt).collect();
    assert_eq!(left, [1]);
}

#[test]
fn a_removed_pod_is_reclaimed_before_its_containers_are_removed() {
    let removes_a_record = |step: &Step| {
        matches!(
            step,
            Step::RemoveContainer { .. } | Step::RemoveSandbox { .. }
        )
    };
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.remove();
    let mut left = None;
    for _ in 0..50 {
        let plan = env.plan();
        if plan.reclaimed && left.is_none() {
            left = Some(env.runtime.containers.len());
            assert_eq!(plan.phase, SyncPhase::Terminated);
            assert!(!env.runtime.sandboxes.iter().any(|sandbox| sandbox.ready));
            assert!(env.pod.cgroup_removed);
        }
        env.start_steps();
        let in_flight = env.pod.in_flight.values();
        let in_flight: Vec<Step> = in_flight.map(|call| call.step.clone()).collect();
        let first = in_flight.iter().find(|step| !removes_a_record(step));
        if let Some(step) = first.or(in_flight.first()) {
            env.finish(step);
        }
    }
    assert_eq!(left, Some(1), "a container, when the pod is reclaimed");
    assert_eq!(env.plan().phase, SyncPhase::CleanedUp);
}
