//! Traces as lines of a list, and as JSON.

use std::time::Duration;

use jiff::Timestamp;
use polylet_trace::{TraceSummary, hex};
use serde_json::{Value, json};

use super::text;

/// A table of traces, the earliest first. `with_roots`: they are of several roots.
pub fn trace_list(traces: &[TraceSummary], with_roots: bool, now: Timestamp) -> String {
    let titles = [
        "AGE",
        "ROOT",
        "POD",
        "SHAPE",
        "TOTAL",
        "WORST STEP",
        "OUTCOME",
        "TRACE",
    ];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(traces.iter().map(|trace| {
        let age = now.duration_since(trace.end()).as_secs();
        let [pod, total, worst] = cells(trace);
        let outcome = trace.outcome_label().to_owned();
        let (root, shape) = (trace.root.clone(), trace.shape.clone());
        vec![
            text::age(age),
            root,
            pod,
            shape,
            total,
            worst,
            outcome,
            hex(&trace.id),
        ]
    }));
    if !with_roots {
        rows.iter_mut().for_each(|row| drop(row.remove(1)));
    }
    text::table(&rows)
}

/// A trace that has just ended, as a line.
pub fn trace_line(trace: &TraceSummary) -> String {
    let [pod, total, worst] = cells(trace);
    let end = trace.end().strftime("%Y-%m-%dT%H:%M:%S%.3fZ");
    let outcome = trace.outcome_label();
    let TraceSummary { root, shape, .. } = trace;
    format!(
        "{end}  {root}  {pod:<40}  {shape:<32}  {total:>9}  {worst:<44}  {outcome:<10}  {}\n",
        hex(&trace.id)
    )
}

/// Pod, total time and worst step.
fn cells(trace: &TraceSummary) -> [String; 3] {
    let worst = trace.worst_step();
    let worst = worst.map(|(step, time)| format!("{step} {}", text::duration(time)));
    [
        format!("{}/{}", trace.namespace, trace.name),
        text::duration(trace.duration),
        worst.unwrap_or_default(),
    ]
}

/// A trace as JSON; times in microseconds.
pub fn summary_as_json(trace: &TraceSummary) -> Value {
    let step = |(step, time): (&polylet_trace::StepName, &Duration)| {
        json!({
            "step": step.to_string(),
            "service": step.service,
            "operation": step.operation,
            "owner": step.owner().map(polylet_trace::StepOwner::label),
            "us": micros(*time),
        })
    };
    json!({
        "traceId": hex(&trace.id),
        "root": trace.root,
        "uid": trace.uid,
        "namespace": trace.namespace,
        "name": trace.name,
        "shape": trace.shape,
        "outcome": trace.outcome_label(),
        "start": trace.start.to_string(),
        "end": trace.end().to_string(),
        "durationUs": micros(trace.duration),
        "worstStep": trace.worst_step().map(|(step, _)| step.to_string()),
        "steps": trace.steps.iter().map(step).collect::<Vec<_>>(),
        "versions": trace.versions,
    })
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::trace_fixture::starts;

    #[test]
    fn traces_are_listed() {
        let now = Timestamp::from_second(1_700_000_060).unwrap();
        let list = trace_list(&starts(), false, now);
        let expected = "\
AGE   POD             SHAPE                 TOTAL      WORST STEP                                   OUTCOME      TRACE
58s   default/web-1   1 container           150.0ms    sync-coordinator/cri.RunPodSandbox 100.0ms   ready        01010101010101010101010101010101
57s   default/web-2   1 container           250.0ms    sync-coordinator/cri.RunPodSandbox 250.0ms   ready        02020202020202020202020202020202
55s   default/web-3   1 container, probes   2000.0ms   prober/probe.http 1990.0ms                   incomplete   03030303030303030303030303030303
";
        assert_eq!(list, expected);
        let with_roots = trace_list(&starts()[..1], true, now);
        assert!(
            with_roots.contains("ROOT") && with_roots.contains("pod.start"),
            "{with_roots}"
        );
    }

    #[test]
    fn a_line_and_json_have_the_same() {
        let [first, ..] = starts();
        let line = trace_line(&first);
        assert!(
            line.starts_with("2023-11-14T22:13:21.150Z  pod.start  default/web-1 "),
            "{line}"
        );
        assert!(
            line.ends_with("  ready       01010101010101010101010101010101\n"),
            "{line}"
        );
        let expected = json!({
            "traceId": "01010101010101010101010101010101",
            "root": "pod.start",
            "uid": "u1",
            "namespace": "default",
            "name": "web-1",
            "shape": "1 container",
            "outcome": "ready",
            "start": "2023-11-14T22:13:21Z",
            "end": "2023-11-14T22:13:21.15Z",
            "durationUs": 150_000,
            "worstStep": "sync-coordinator/cri.RunPodSandbox",
            "steps": [
                {"step": "(unattributed)", "service": "", "operation": "", "owner": null, "us": 30_000},
                {
                    "step": "sync-coordinator/cri.RunPodSandbox", "service": "sync-coordinator",
                    "operation": "cri.RunPodSandbox", "owner": "runtime", "us": 100_000,
                },
                {
                    "step": "sync-coordinator/sync.start", "service": "sync-coordinator",
                    "operation": "sync.start", "owner": "polylet", "us": 20_000,
                },
            ],
            "versions": {"pleg": "0.1.0"},
        });
        assert_eq!(summary_as_json(&first), expected);
    }
}
