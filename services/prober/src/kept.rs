//! The verdicts on disk: what a restart must not flip.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use polylet_kit::kept::{self, KeptError};
use polylet_wire::common::v1::Cause;
use polylet_wire::{prober, time};
use serde::{Deserialize, Serialize};

use crate::convert;
use crate::core::types::{Outcome, ProbeId};
use crate::judge::Verdicts;

const VERSION: u32 = 1;

/// One verdict on disk.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    pod: String,
    container: String,
    kind: i32,
    success: bool,
    #[serde(default)]
    run_length: u32,
    #[serde(default)]
    message: String,
    #[serde(default)]
    since: Option<Timestamp>,
    #[serde(default)]
    traceparent: String,
}

/// Writes all verdicts. Blocks.
pub(crate) fn save(path: &Path, verdicts: &Verdicts) -> Result<(), KeptError> {
    let all: Vec<Kept> = verdicts
        .iter()
        .map(|((pod, container, kind), verdict)| Kept {
            pod: pod.clone(),
            container: container.clone(),
            kind: *kind,
            success: verdict.outcome() == prober::v1::Outcome::Success,
            run_length: verdict.run_length,
            message: verdict.message.clone(),
            since: time::from_wire_opt(verdict.since.as_ref()),
            traceparent: verdict
                .cause
                .as_ref()
                .map(|cause| cause.traceparent.clone())
                .unwrap_or_default(),
        })
        .collect();
    kept::save(path, VERSION, &all)
}

/// Reads them. A file that cannot be read is put out of the way: its verdicts will be found anew.
pub(crate) fn load(path: &Path) -> Verdicts {
    let without = "the verdicts so far are lost";
    let kept: Option<Vec<Kept>> = kept::load_or_set_aside(path, VERSION, without);
    kept.unwrap_or_default()
        .into_iter()
        .filter(|kept| convert::kind_from_wire(kept.kind).is_some())
        .map(to_wire)
        .collect()
}

fn to_wire(kept: Kept) -> ((String, String, i32), prober::v1::Verdict) {
    let outcome = if kept.success {
        prober::v1::Outcome::Success
    } else {
        prober::v1::Outcome::Failure
    };
    let since = kept.since.map(time::to_wire);
    let key = prober::v1::VerdictKey {
        pod_uid: kept.pod.clone(),
        container_id: kept.container.clone(),
        kind: kept.kind,
    };
    let verdict = prober::v1::Verdict {
        key: Some(key),
        outcome: outcome as i32,
        run_length: kept.run_length,
        message: kept.message,
        since,
        cause: Some(Cause {
            traceparent: kept.traceparent,
            observed_at: since,
            links: Vec::new(),
        }),
    };
    ((kept.pod, kept.container, kept.kind), verdict)
}

/// The same for the core.
pub(crate) fn outcomes(verdicts: &Verdicts) -> BTreeMap<ProbeId, Outcome> {
    let known = verdicts
        .iter()
        .filter_map(|((pod, container, kind), verdict)| {
            let kind = convert::kind_from_wire(*kind)?;
            let id = ProbeId {
                pod: pod.as_str().into(),
                container: container.as_str().into(),
                kind,
            };
            let outcome = match verdict.outcome() {
                prober::v1::Outcome::Success => Outcome::Success,
                prober::v1::Outcome::Failure => Outcome::Failure,
                prober::v1::Outcome::Unspecified | prober::v1::Outcome::Unknown => return None,
            };
            Some((id, outcome))
        });
    known.collect()
}
