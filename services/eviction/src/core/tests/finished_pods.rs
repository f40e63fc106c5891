//! Which pods will never run again, and what is left of them.

use std::sync::Arc;

use super::*;
use crate::core::pods::{
    DeadContainer, NodePods, PodRestartPolicy, PodUsageSpec, RunningContainer, RuntimePod,
};

fn dead(second: i64, failed: bool) -> DeadContainer {
    DeadContainer {
        at: Some(at(second)),
        failed,
    }
}

fn node(spec: Option<PodUsageSpec>, pod: RuntimePod) -> NodePods {
    let mut pods = NodePods::default();
    pods.specs
        .extend(spec.map(|spec| ("u".into(), Arc::new(spec))));
    pods.runtime.insert("u".into(), Arc::new(pod));
    pods
}

fn spec(restart_policy: PodRestartPolicy) -> PodUsageSpec {
    PodUsageSpec {
        restart_policy,
        ..PodUsageSpec::default()
    }
}

#[test]
fn pods_that_will_not_run_again_are_finished() {
    let ended = |failed| RuntimePod {
        dead: vec![dead(5, failed)],
        sandboxes: vec![Some(at(1))],
        ..RuntimePod::default()
    };
    use PodRestartPolicy::{Always, Never, OnFailure};
    for (policy, failed, evicted, finished) in [
        (Some(Always), true, false, false),
        (Some(Always), true, true, true),
        (Some(OnFailure), true, false, false),
        (Some(OnFailure), false, false, true),
        (Some(Never), true, false, true),
        // No longer desired.
        (None, true, false, true),
    ] {
        let pods = node(policy.map(spec), ended(failed));
        assert_eq!(
            pods.is_finished("u", evicted),
            finished,
            "{policy:?} {failed} {evicted}"
        );
    }
    let succeeded = PodUsageSpec {
        has_terminal_phase: true,
        ..spec(Always)
    };
    assert!(node(Some(succeeded), ended(false)).is_finished("u", false));
    let running = RuntimePod {
        running: vec![RunningContainer::default()],
        ..ended(true)
    };
    assert!(!node(Some(spec(Never)), running).is_finished("u", true));
    // Not started yet.
    assert!(!node(Some(spec(Never)), RuntimePod::default()).is_finished("u", false));
}

#[test]
fn a_reclaim_waits_for_what_had_ended_before_it() {
    let pod = RuntimePod {
        dead: vec![dead(5, false)],
        ..RuntimePod::default()
    };
    let pods = node(Some(spec(PodRestartPolicy::Never)), pod);
    let left = |pods: &NodePods, second| pods.has_dead_containers(at(second), |_| false);
    assert!(left(&pods, 5) && !left(&pods, 4));
    // Its sandbox is removed after them.
    let sandbox = RuntimePod {
        sandboxes: vec![Some(at(1))],
        ..RuntimePod::default()
    };
    assert!(left(&node(None, sandbox), 4));
    // What may start again is left alone.
    let restarts = RuntimePod {
        dead: vec![dead(1, true)],
        ..RuntimePod::default()
    };
    assert!(!left(
        &node(Some(spec(PodRestartPolicy::Always)), restarts),
        9
    ));
}
