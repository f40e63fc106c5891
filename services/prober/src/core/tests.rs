//! What the tests of the core share.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_model::probe::ProbeKind;

use super::types::{Ask, Job, Observation, Probe, ProbeId, Timing};

pub(in crate::core) fn at(ms: u64) -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap() + Duration::from_millis(ms)
}

pub(in crate::core) fn timing(delay: u64, period: u64, success: u32, failure: u32) -> Timing {
    Timing {
        initial_delay: Duration::from_secs(delay),
        period: Duration::from_secs(period),
        success_threshold: success,
        failure_threshold: failure,
        first_retry: Duration::from_millis(50),
    }
}

pub(in crate::core) fn failure() -> Observation {
    Observation::Failure("no".to_owned())
}

pub(in crate::core) fn id_of(container: &str, kind: ProbeKind) -> ProbeId {
    ProbeId {
        pod: "pod".into(),
        container: container.into(),
        kind,
    }
}

/// An attempt of a probe of the container `main` of `default/web`.
pub(in crate::core) fn job(container: &str, kind: ProbeKind) -> Job {
    Job {
        id: id_of(container, kind),
        serial: 1,
        probe: Arc::new(Probe {
            part: "spec.containers{main}".into(),
            kind,
            ask: Ask::Impossible(String::new()),
            timing: timing(0, 1, 1, 1),
            timeout: Duration::from_secs(1),
        }),
        host: "".into(),
        namespace: "default".into(),
        pod: "web".into(),
        container: "main".into(),
        attempt: 0,
        awaited: false,
    }
}

#[test]
fn what_people_are_told_of_an_attempt() {
    let said = |said: Observation| said.notice(ProbeKind::Readiness);
    let why = || "why".to_owned();
    assert_eq!(said(Observation::Success), None);
    for (observation, reason, message) in [
        (
            Observation::Failure(why()),
            "Unhealthy",
            "Readiness probe failed: why",
        ),
        (
            Observation::Unknown(why()),
            "Unhealthy",
            "Readiness probe errored and resulted in unknown state: why",
        ),
        (
            Observation::Warning(why()),
            "ProbeWarning",
            "Readiness probe warning: why",
        ),
    ] {
        assert_eq!(said(observation), Some((reason, message.to_owned())));
    }
}
