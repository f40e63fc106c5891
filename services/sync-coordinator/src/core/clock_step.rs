//! Grace periods and back-offs last as long as the monotonic clock says: after a step of the wall
//! clock the times that belong to them are moved by the step. Only across restarts of the process the
//! wall clock alone is known.

use jiff::{SignedDuration, Timestamp};

use crate::core::view::PodSyncStatus;

/// Moves the times of a pod's grace periods, back-offs and steps in flight.
pub fn shift(pod: &mut PodSyncStatus, step: SignedDuration) {
    let lifecycle = &mut pod.lifecycle;
    let stops = lifecycle.stops.values_mut();
    let stops = stops.flat_map(|stop| [&mut stop.started_at, &mut stop.deadline]);
    let failures = pod.failures.values_mut().flat_map(|failure| {
        [
            &mut failure.first_failed_at,
            &mut failure.last_failed_at,
            &mut failure.retry_at,
        ]
    });
    let in_flight = pod.in_flight.values_mut();
    let in_flight = in_flight.map(|in_flight| &mut in_flight.started_at);
    let restarts = lifecycle.pending_restarts.values_mut();
    let restarts = restarts.filter_map(|restart| restart.not_before.as_mut());
    let searches = pod.image_searches.values_mut();
    let others = [
        &mut pod.affinity_unmet_since,
        &mut pod.network_reported_at,
        &mut pod.cleaned_up_at,
        &mut pod.volumes.released_at,
    ];
    let others = others.into_iter().flatten();
    for time in stops
        .chain(failures)
        .chain(in_flight)
        .chain(restarts)
        .chain(searches)
        .chain(others)
    {
        *time = shifted(*time, step);
    }
}

fn shifted(time: Timestamp, step: SignedDuration) -> Timestamp {
    let limit = if step.is_negative() {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    time.checked_add(step).unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::step::{Step, StepFailure, StepKey};
    use crate::core::test_support::{TestEnv, at, simple};

    fn stop_grace(steps: &[Step]) -> Option<u32> {
        steps.iter().find_map(|step| match step {
            Step::StopContainer { grace_period, .. } => Some(*grace_period),
            _ => None,
        })
    }

    #[test]
    fn a_grace_period_lasts_as_long_after_a_clock_step() {
        for step in [-86_400, -31, 31, 86_400] {
            let mut env = TestEnv::new(simple("Always", &["a"]));
            env.run_until_idle();
            env.remove();
            let steps = env.start_steps();
            assert_eq!(stop_grace(&steps), Some(30));
            env.advance_clock(10);
            env.fail(&steps[0], StepFailure::default());
            env.advance_clock(step);
            shift(&mut env.pod, SignedDuration::from_secs(step));
            env.advance_clock(10);
            assert_eq!(stop_grace(&env.start_steps()), Some(10), "step of {step} s");
        }
    }

    #[test]
    fn a_back_off_lasts_as_long_after_a_clock_step() {
        for step in [-3_600, 3_600] {
            let mut env = TestEnv::new(simple("Always", &["a"]));
            for _ in 0..3 {
                for step in env.start_steps() {
                    let pull = matches!(step, Step::PullImage { .. });
                    if pull {
                        env.fail(&step, StepFailure::default());
                    } else {
                        env.finish(&step);
                    }
                }
            }
            let key = StepKey::PullImage("a".into());
            assert_eq!(env.pod.failures[&key].retry_at, at(10));
            env.advance_clock(step);
            shift(&mut env.pod, SignedDuration::from_secs(step));
            assert_eq!(env.pod.failures[&key].retry_at, at(step + 10));
            assert!(!env.planned_keys().contains(&key));
            env.advance_clock(10);
            assert!(env.planned_keys().contains(&key));
        }
    }

    #[test]
    fn times_stay_in_range() {
        assert_eq!(
            shifted(Timestamp::MAX, SignedDuration::from_secs(1)),
            Timestamp::MAX
        );
        assert_eq!(
            shifted(Timestamp::MIN, SignedDuration::from_secs(-1)),
            Timestamp::MIN
        );
    }
}
