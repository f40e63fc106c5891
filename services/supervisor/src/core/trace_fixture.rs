//! Traces for tests of what commands print.

use std::time::Duration;

use jiff::Timestamp;
use polylet_trace::{StepName, TraceSummary};

const COORDINATOR: &str = "sync-coordinator";
const SANDBOX: &str = "cri.RunPodSandbox";

/// Three starts of pods, a second after one another; the last one of another shape, and incomplete.
pub(crate) fn starts() -> [TraceSummary; 3] {
    let mut probed = start(3, &[("prober", "probe.http", 1_990), ("", "", 10)]);
    probed.shape = "1 container, probes".to_owned();
    probed.outcome = String::new();
    [
        start(
            1,
            &[
                (COORDINATOR, SANDBOX, 100),
                (COORDINATOR, "sync.start", 20),
                ("", "", 30),
            ],
        ),
        start(2, &[(COORDINATOR, SANDBOX, 250)]),
        probed,
    ]
}

/// A start with the milliseconds of its steps.
pub(crate) fn start(id: u8, steps: &[(&str, &str, u64)]) -> TraceSummary {
    let step = |(service, operation, millis): &(&str, &str, u64)| {
        let name = StepName {
            service: (*service).to_owned(),
            operation: (*operation).to_owned(),
        };
        (name, Duration::from_millis(*millis))
    };
    TraceSummary {
        id: [id; 16],
        root: "pod.start".to_owned(),
        uid: format!("u{id}"),
        namespace: "default".to_owned(),
        name: format!("web-{id}"),
        shape: "1 container".to_owned(),
        outcome: "ready".to_owned(),
        start: Timestamp::from_second(1_700_000_000 + i64::from(id)).unwrap(),
        duration: steps.iter().map(|step| Duration::from_millis(step.2)).sum(),
        steps: steps.iter().map(step).collect(),
        versions: [("pleg".to_owned(), "0.1.0".to_owned())].into(),
    }
}
