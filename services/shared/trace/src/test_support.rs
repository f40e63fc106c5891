//! Summaries for tests.

use std::time::Duration;

use jiff::Timestamp;

use crate::summary::{StepName, TraceSummary};

/// The start of a pod with steps (service, operation, milliseconds), begun at a number of milliseconds.
pub(crate) fn summary(id: u8, start: i64, steps: &[(&str, &str, u64)]) -> TraceSummary {
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
        start: Timestamp::from_millisecond(start).unwrap(),
        duration: steps.iter().map(|step| Duration::from_millis(step.2)).sum(),
        steps: steps.iter().map(step).collect(),
        versions: [("pleg".to_owned(), "0.1.0".to_owned())].into(),
    }
}
