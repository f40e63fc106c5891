//! Exits of containers, termination and removal of pods.

use polylet_model::constants::{phase, reason};
use serde_json::json;

use super::{sidecar_pod, stop_of};
use crate::core::checkpoint::PodTermination;
use crate::core::plan::SyncPhase;
use crate::core::pod_spec::PodSpecView;
use crate::core::step::Step;
use crate::core::test_support::{TestEnv, at, manifest, simple};
use crate::core::view::ProbeFailure;

#[test]
fn pods_without_restart_complete() {
    for (codes, expected) in [([0, 0], phase::SUCCEEDED), ([0, 3], phase::FAILED)] {
        let mut env = TestEnv::new(simple("Never", &["a", "b"]));
        env.run_until_idle();
        env.exit_container("a", codes[0]);
        env.run_until_idle();
        assert_eq!(env.plan().phase, SyncPhase::Syncing);
        env.exit_container("b", codes[1]);
        env.run_until_idle();
        let termination = env.pod.checkpoint.termination.clone().unwrap();
        assert_eq!(
            (termination.phase.as_str(), termination.reason.as_str()),
            (expected, "")
        );
        assert_eq!(env.plan().phase, SyncPhase::Terminated);
        assert_eq!(env.runtime.containers.len(), 2, "records remain");
        assert!(!env.runtime.sandboxes[0].ready);
        let done = env.history.len();
        env.restart_process();
        env.run_until_idle();
        assert_eq!(
            env.history.len(),
            done,
            "nothing to do after a process restart"
        );
    }
}

#[test]
fn a_sidecar_that_starts_while_its_pod_completes_is_stopped() {
    let mut spec = simple("Never", &["a"]);
    spec["initContainers"] = json!([{"name": "s", "image": "s:1", "restartPolicy": "Always"}]);
    let mut env = TestEnv::new(spec);
    env.run_until_idle();
    env.exit_container("s", 1);
    let start = loop {
        env.advance_clock(1);
        let steps = env.start_steps();
        match steps
            .iter()
            .find(|s| matches!(s, Step::StartContainer { .. }))
        {
            Some(start) => break start.clone(),
            None => steps.iter().for_each(|step| env.finish(step)),
        }
    };
    env.exit_container("a", 0);
    let steps = env.start_steps();
    assert!(
        matches!(steps.as_slice(), [Step::CheckpointTermination(_)]),
        "{steps:?}"
    );
    env.finish(&steps[0]);
    // The runtime may still start it: the pod waits for that, and stops it then.
    assert!(env.start_steps().is_empty());
    env.finish(&start);
    env.relist();
    assert_eq!(env.running_names(), ["s"]);
    env.run_until_idle();
    assert!(env.running_names().is_empty());
    assert_eq!(env.plan().phase, SyncPhase::Terminated);
}

#[test]
fn a_changed_image_replaces_the_container_under_every_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut env = TestEnv::new(simple(policy, &["a", "b"]));
        env.run_until_idle();
        let mut spec = simple(policy, &["a", "b"]);
        spec["containers"][1]["image"] = json!("other:2");
        env.spec = PodSpecView::from_manifest(&manifest(spec), &[]).into();
        env.pod.spec = Some(env.spec.clone());
        let steps = env.start_steps();
        assert_eq!(steps.iter().find_map(stop_of), Some(("b", 30)), "{policy}");
        for step in steps {
            env.finish(&step);
        }
        env.run_until_idle();
        assert_eq!(env.running_names(), ["a", "b"], "{policy}");
    }
}

#[test]
fn failed_probes_restart_containers_by_policy() {
    for (policy, again) in [("Always", true), ("OnFailure", true), ("Never", false)] {
        let mut spec = simple(policy, &["a", "b"]);
        spec["containers"][0]["livenessProbe"] =
            json!({"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 7});
        let mut env = TestEnv::new(spec);
        env.run_until_idle();
        let id = env.running("a").unwrap();
        env.pod.probe_failures.insert(
            id,
            ProbeFailure {
                startup: false,
                message: String::new(),
            },
        );
        let steps = env.start_steps();
        assert_eq!(steps.iter().find_map(stop_of), Some(("a", 7)));
        steps.iter().for_each(|step| env.finish(step));
        env.run_until_idle();
        let expected: &[&str] = if again { &["a", "b"] } else { &["b"] };
        assert_eq!(env.running_names(), expected, "{policy}");
    }
}

#[test]
fn a_container_that_lives_longer_than_the_back_off_restarts_at_once_after_a_failed_probe() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    for (life, waits) in [(30, false), (30, false), (5, true), (30, false)] {
        env.advance_clock(life);
        let id = env.running("a").unwrap();
        let failure = ProbeFailure {
            startup: false,
            message: String::new(),
        };
        env.pod.probe_failures.insert(id, failure);
        env.run_until_idle();
        assert_eq!(env.running("a").is_none(), waits, "after {life} s");
        if waits {
            env.advance_clock(10);
            env.run_until_idle();
        }
    }
}

#[test]
fn a_lost_sandbox_is_recreated_unless_nothing_would_start() {
    for (policy, codes, again) in [
        ("Always", [None, None], true),
        ("OnFailure", [Some(0), None], true),
        ("OnFailure", [Some(0), Some(0)], false),
        ("Never", [None, None], false),
    ] {
        let mut env = TestEnv::new(simple(policy, &["a", "b"]));
        env.run_until_idle();
        for (name, code) in ["a", "b"].iter().zip(codes) {
            let id = env.running(name).unwrap();
            if let Some(code) = code {
                env.exit_by_id(&id, code);
            }
        }
        env.runtime.sandboxes[0].ready = false;
        env.relist();
        env.run_until_idle();
        env.advance_clock(30);
        env.run_until_idle();
        let ready = env.runtime.sandboxes.iter().filter(|s| s.ready).count();
        assert_eq!(ready == 1, again, "{policy} {codes:?}");
        if again {
            let expected: Vec<&str> = ["a", "b"]
                .iter()
                .zip(codes)
                .filter(|(_, c)| c.is_none())
                .map(|(n, _)| *n)
                .collect();
            assert_eq!(env.running_names(), expected, "{policy} {codes:?}");
            assert_eq!(env.runtime.newest_sandbox().unwrap().attempt, 1);
            assert_eq!(
                env.runtime.sandboxes.len(),
                if policy == "OnFailure" {
                    2
                } else {
                    env.runtime.sandboxes.len()
                }
            );
        } else {
            assert!(env.pod.checkpoint.termination.is_some());
        }
    }
}

#[test]
fn removal_stops_regular_containers_first_and_sidecars_in_reverse() {
    let mut env = TestEnv::new(sidecar_pod());
    env.run_until_idle();
    env.pod.startup_succeeded.insert(env.running("s1").unwrap());
    env.run_until_idle();
    env.exit_container("i2", 0);
    env.run_until_idle();
    env.remove();
    for name in ["a", "s3", "s1"] {
        let steps = env.start_steps();
        let stops: Vec<&str> = steps
            .iter()
            .filter_map(stop_of)
            .map(|(name, _)| name)
            .collect();
        assert_eq!(stops, [name]);
        steps.iter().for_each(|step| env.finish(step));
    }
    env.run_until_idle();
    assert!(env.runtime.is_empty());
    assert_eq!(env.plan().phase, SyncPhase::CleanedUp);
}

#[test]
fn removal_removes_everything_in_order() {
    let mut spec = simple("Always", &["a", "b"]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let mut env = TestEnv::new(spec);
    env.run_until_idle();
    env.history.clear();
    env.remove();
    let steps = env.start_steps();
    let mut stops: Vec<(&str, u32)> = steps.iter().filter_map(stop_of).collect();
    stops.sort_unstable();
    assert_eq!(stops, [("a", 30), ("b", 30)]);
    assert_eq!(env.plan().phase, SyncPhase::Terminating);
    steps.iter().for_each(|step| env.finish(step));
    let steps = env.start_steps();
    assert!(matches!(steps[..], [Step::StopSandbox { .. }]), "{steps:?}");
    assert_eq!(env.plan().phase, SyncPhase::Terminating);
    env.finish(&steps[0]);
    // The last status is published while the rest goes.
    assert_eq!(env.plan().phase, SyncPhase::Terminated);
    let mut removed_sandbox = false;
    loop {
        let steps = env.start_steps();
        if steps.is_empty() {
            break;
        }
        let removes_sandbox = |step: &Step| matches!(step, Step::RemoveSandbox { .. });
        if steps.iter().any(removes_sandbox) {
            let left = (steps.len(), env.runtime.containers.len(), &env.volumes);
            assert_eq!(left, (1, 0, &None), "the sandbox goes last");
            removed_sandbox = true;
        }
        steps.iter().for_each(|step| env.finish(step));
    }
    assert!(removed_sandbox);
    assert!(env.runtime.is_empty() && env.volumes.is_none());
    assert_eq!(env.plan().phase, SyncPhase::CleanedUp);
    assert!(!env.plan().forget);
    env.advance_clock(2);
    assert!(env.plan().forget);
}

#[test]
fn orphans_are_removed_after_all_sources_have_synced() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.restart_process();
    env.pod.spec = None;
    env.pod.has_source = false;
    env.node.all_synced = false;
    assert!(env.plan().steps.is_empty());
    assert_eq!(env.plan().phase, SyncPhase::Pending);
    env.node.all_synced = true;
    assert_eq!(env.start_steps().iter().find_map(stop_of), Some(("a", 2)));
    env.node.all_synced = false;
    env.runtime.containers[0].grace_period = Some(9);
    env.pod.lifecycle = Default::default();
    env.restart_process();
    env.pod.spec = None;
    env.pod.has_source = false;
    env.node.all_synced = true;
    assert_eq!(env.start_steps().iter().find_map(stop_of), Some(("a", 9)));
}

#[test]
fn an_eviction_is_stored_before_it_is_executed() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.pod.eviction = Some(PodTermination {
        reason: reason::EVICTED.into(),
        message: "The node was low on resource: memory.".into(),
        phase: phase::FAILED.into(),
        disruption_target: true,
        decided_at: at(0),
        grace_period: Some(1),
    });
    let steps = env.start_steps();
    assert!(
        matches!(steps.as_slice(), [Step::CheckpointTermination(_)]),
        "{steps:?}"
    );
    steps.iter().for_each(|step| env.finish(step));
    env.pod.eviction = None;
    env.restart_process();
    assert_eq!(env.start_steps().iter().find_map(stop_of), Some(("a", 2)));
    env.restart_process();
    env.run_until_idle();
    assert_eq!(env.plan().phase, SyncPhase::Terminated);
}

#[test]
fn active_deadline_counts_from_the_start_time() {
    let mut spec = simple("Always", &["a"]);
    spec["activeDeadlineSeconds"] = json!(60);
    let mut env = TestEnv::new(spec);
    env.run_until_idle();
    assert_eq!(env.plan().wake_at, Some(at(60)));
    env.advance_clock(60);
    env.restart_process();
    env.run_until_idle();
    assert_eq!(
        env.pod.checkpoint.termination.as_ref().unwrap().reason,
        reason::DEADLINE_EXCEEDED
    );
    assert!(env.running_names().is_empty());
}

#[test]
fn admission_under_node_pressure() {
    let burstable = json!({"restartPolicy": "Always", "containers": [
        {"name": "a", "image": "a:1", "resources": {"requests": {"cpu": "100m"}}}]});
    let tolerant = json!({"restartPolicy": "Always", "containers": [{"name": "a", "image": "a:1"}],
        "tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}]});
    let critical = json!({"restartPolicy": "Always", "priority": 2_000_000_000, "containers": [{"name": "a", "image": "a:1"}]});
    for (spec, memory, disk) in [
        (simple("Always", &["a"]), false, false),
        (burstable, true, false),
        (tolerant, true, false),
        (critical, true, true),
    ] {
        for (is_memory, rejected) in [(true, !memory), (false, !disk)] {
            let mut env = TestEnv::new(spec.clone());
            env.node.pressure.memory = is_memory;
            env.node.pressure.disk = !is_memory;
            env.run_until_idle();
            assert_eq!(
                env.pod.checkpoint.termination.is_some(),
                rejected,
                "{spec} memory {is_memory}"
            );
            assert_eq!(env.running_names().is_empty(), rejected);
        }
    }
    // A running pod stays admitted.
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.node.pressure.disk = true;
    env.restart_process();
    assert!(env.plan().steps.is_empty());
}

#[test]
fn an_extra_sandbox_is_stopped() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    let mut late = env.runtime.sandboxes[0].clone();
    (late.id, late.attempt) = ("late".into(), 5);
    env.runtime.sandboxes.insert(0, late);
    env.relist();
    assert_eq!(env.plan().steps, [Step::StopSandbox { id: "late".into() }]);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a"]);
    assert_eq!(env.runtime.sandboxes.len(), 1);
}
