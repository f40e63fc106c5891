use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn exit(step: u32, ran: i64) -> ContainerExit {
    ContainerExit {
        attempt: step,
        step: Some(step),
        started_at: Some(at(1_000)),
        finished_at: at(1_000 + ran),
        spec_changed: false,
    }
}

#[test]
fn delays_as_upstream() {
    let back_off = CrashLoopBackOff::default();
    let mut step = 0;
    let mut delays = Vec::new();
    for _ in 0..9 {
        let next = back_off.after(&exit(step, 1));
        delays.push(next.delay.as_secs());
        assert_eq!(next.not_before, at(1_001 + next.delay.as_secs() as i64));
        step = next.step;
    }
    assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300, 300]);
}

#[test]
fn long_runs_and_changed_specs_reset_the_step() {
    let back_off = CrashLoopBackOff::default();
    assert_eq!(back_off.after(&exit(7, 600)).delay.as_secs(), 300);
    let next = back_off.after(&exit(7, 601));
    assert_eq!((next.delay.as_secs(), next.step), (0, 1));
    let changed = ContainerExit {
        spec_changed: true,
        ..exit(7, 1)
    };
    assert_eq!(
        (
            back_off.after(&changed).delay.as_secs(),
            back_off.after(&changed).step
        ),
        (0, 1)
    );
    let foreign = ContainerExit {
        step: None,
        ..exit(4, 1)
    };
    assert_eq!(back_off.after(&foreign).delay.as_secs(), 80);
    let never_ran = ContainerExit {
        started_at: None,
        ..exit(2, 9_999)
    };
    assert_eq!(back_off.after(&never_ran).delay.as_secs(), 20);
}

/// The delays of a container whose liveness probe fails again and again after each of these lives,
/// in seconds.
fn delays_after_kills(lives: &[i64]) -> Vec<u64> {
    let back_off = CrashLoopBackOff::default();
    let (mut step, mut started, mut previous) = (0, at(1_000), None);
    let mut delays = Vec::new();
    for (attempt, life) in (0..).zip(lives) {
        let finished_at = started + SignedDuration::from_secs(*life);
        let exit = ContainerExit {
            attempt,
            step: Some(step),
            started_at: Some(started),
            finished_at,
            spec_changed: false,
        };
        let next = back_off.after_kill(&exit, previous);
        delays.push(next.delay.as_secs());
        (step, started, previous) = (next.step, next.not_before, Some(finished_at));
    }
    delays
}

#[test]
fn kills_back_off_from_the_exit_before() {
    assert_eq!(
        delays_after_kills(&[30, 30, 30, 30, 30, 30]),
        [0, 0, 0, 0, 40, 80]
    );
    assert_eq!(delays_after_kills(&[5, 5, 5, 5]), [0, 0, 10, 20]);
    assert_eq!(
        delays_after_kills(&[500; 9]),
        [0; 9],
        "longer than any delay"
    );
    assert_eq!(delays_after_kills(&[5, 5, 5, 700, 5]), [0, 0, 10, 0, 10]);
}

#[test]
fn a_kill_after_a_lost_record_counts_from_the_start() {
    let back_off = CrashLoopBackOff::default();
    assert_eq!(back_off.after_kill(&exit(2, 15), None).delay.as_secs(), 20);
    let long = back_off.after_kill(&exit(2, 25), None);
    assert_eq!((long.delay.as_secs(), long.step), (0, 3));
}

#[test]
fn a_cap_below_the_initial_delay_replaces_it() {
    let quick = CrashLoopBackOff::with_cap(Duration::from_secs(3));
    assert_eq!((quick.delay(1).as_secs(), quick.delay(9).as_secs()), (3, 3));
    let middle = CrashLoopBackOff::with_cap(Duration::from_secs(15));
    assert_eq!(
        (middle.delay(1).as_secs(), middle.delay(2).as_secs()),
        (10, 15)
    );
}

fn container(value: serde_json::Value) -> Container {
    serde_json::from_value(value).unwrap()
}

#[test]
fn decisions_by_policy() {
    use ContainerKind::*;
    use RestartDecision::*;
    let plain = container(json!({"name": "a"}));
    for (kind, policy, code, expected) in [
        (Regular, RestartPolicy::Always, 0, Restart),
        (Regular, RestartPolicy::Always, 1, Restart),
        (Regular, RestartPolicy::OnFailure, 0, NoRestart),
        (Regular, RestartPolicy::OnFailure, 1, Restart),
        (Regular, RestartPolicy::Never, 0, NoRestart),
        (Regular, RestartPolicy::Never, 1, NoRestart),
        (Init, RestartPolicy::Always, 0, NoRestart),
        (Init, RestartPolicy::Always, 1, Restart),
        (Init, RestartPolicy::OnFailure, 1, Restart),
        (Init, RestartPolicy::Never, 1, NoRestart),
        (Ephemeral, RestartPolicy::Always, 1, NoRestart),
    ] {
        assert_eq!(
            after_exit(kind, &plain, policy, code),
            expected,
            "{kind:?} {policy:?} {code}"
        );
    }
    let sidecar = container(json!({"name": "a", "restartPolicy": "Always"}));
    assert_eq!(
        after_exit(Sidecar, &sidecar, RestartPolicy::Never, 0),
        Restart
    );
    let own = container(json!({"name": "a", "restartPolicy": "Never"}));
    assert_eq!(
        after_exit(Regular, &own, RestartPolicy::Always, 1),
        NoRestart
    );
    assert_eq!(after_kill(Regular, &own, RestartPolicy::Always), NoRestart);
    assert_eq!(
        after_kill(Regular, &plain, RestartPolicy::OnFailure),
        Restart
    );
}

#[test]
fn the_first_matching_rule_is_used() {
    let ruled = container(
        json!({"name": "a", "restartPolicy": "Never", "restartPolicyRules": [
        {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}},
        {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0, 1]}}]}),
    );
    let decide = |code| after_exit(ContainerKind::Regular, &ruled, RestartPolicy::Always, code);
    assert_eq!(decide(42), RestartDecision::Restart);
    assert_eq!(decide(7), RestartDecision::RestartAll);
    assert_eq!(decide(1), RestartDecision::NoRestart);
    // Rules stand only beside a policy of the container's own.
    let mut unruled = ruled.clone();
    unruled.restart_policy = None;
    assert_eq!(
        after_exit(ContainerKind::Regular, &unruled, RestartPolicy::Never, 42),
        RestartDecision::NoRestart
    );
}

proptest! {
    #[test]
    fn delays_never_shrink_nor_exceed_the_cap(step in 0_u32..u32::MAX, cap in 1_u64..400) {
        let back_off = CrashLoopBackOff::with_cap(Duration::from_secs(cap));
        prop_assert!(back_off.delay(step) <= back_off.delay(step + 1));
        prop_assert!(back_off.delay(step) <= back_off.cap);
    }
    #[test]
    fn the_next_start_is_never_before_the_exit(step in any::<u32>(), ran in 0_i64..100_000, known in any::<bool>()) {
        let mut exit = exit(step, ran);
        if !known { exit.step = None; }
        let next = CrashLoopBackOff::default().after(&exit);
        prop_assert!(next.not_before >= exit.finished_at);
        prop_assert!(next.step >= 1);
    }
}
