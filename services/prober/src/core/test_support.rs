//! Fixtures for the tests of the core.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_model::probe::ProbeKind;

use super::types::{ProbeAttempt, ProbeConfig, ProbeId, ProbeOutput, ProbeTiming, ResolvedHandler};

pub(crate) fn at(ms: u64) -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap() + Duration::from_millis(ms)
}

pub(crate) fn timing(delay: u64, period: u64, success: u32, failure: u32) -> ProbeTiming {
    ProbeTiming {
        initial_delay: Duration::from_secs(delay),
        period: Duration::from_secs(period),
        success_threshold: success,
        failure_threshold: failure,
        first_retry: Duration::from_millis(50),
    }
}

pub(crate) fn failure() -> ProbeOutput {
    ProbeOutput::Failure("no".to_owned())
}

pub(crate) fn probe_id(container: &str, kind: ProbeKind) -> ProbeId {
    ProbeId {
        pod: "pod".into(),
        container: container.into(),
        kind,
    }
}

/// An attempt of a probe of the container `main` of `default/web`.
pub(crate) fn attempt(container: &str, kind: ProbeKind) -> ProbeAttempt {
    ProbeAttempt {
        id: probe_id(container, kind),
        serial: 1,
        probe: Arc::new(ProbeConfig {
            field_path: "spec.containers{main}".into(),
            kind,
            handler: ResolvedHandler::Invalid(String::new()),
            timing: timing(0, 1, 1, 1),
            timeout: Duration::from_secs(1),
        }),
        host: "".into(),
        namespace: "default".into(),
        pod: "web".into(),
        container: "main".into(),
        attempt: 0,
        awaited: false,
        counts: true,
    }
}
