//! Fixtures for the tests of the core.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_model::probe::ProbeKind;

use super::types::*;

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

/// A result of so many equal ones.
pub(crate) fn result(run_length: u32) -> ProbeResult {
    ProbeResult {
        outcome: ProbeOutcome::Success,
        run_length,
        message: String::new(),
        since: Some(at(0)),
        traceparent: String::new(),
    }
}

/// The probes of `default/web`, whose container `main` has one of each of these kinds.
pub(crate) fn pod(kinds: &[ProbeKind]) -> PodProbes {
    let probes = kinds.iter().map(|kind| {
        Arc::new(ProbeConfig {
            field_path: "spec.containers{main}".into(),
            kind: *kind,
            handler: ResolvedHandler::Tcp {
                host: None,
                port: 80,
            },
            timing: timing(0, 10, 1, 1),
            timeout: Duration::from_secs(1),
        })
    });
    PodProbes {
        namespace: "default".into(),
        name: "web".into(),
        deleting: false,
        containers: vec![ContainerProbes {
            name: "main".into(),
            probes: probes.collect(),
        }],
    }
}

/// A pod in the runtime: containers of the name `main` with these ids, and whether each runs.
pub(crate) fn observed(containers: &[(&str, bool)]) -> Option<ObservedPod> {
    let containers = containers.iter().map(|(id, running)| ObservedContainer {
        id: (*id).into(),
        name: "main".to_owned(),
        attempt: 0,
        running: *running,
        started_at: Some(at(0)),
    });
    Some(ObservedPod {
        sandbox: Some("sandbox".into()),
        host: Some("10.0.0.1".into()),
        containers: containers.collect(),
    })
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
