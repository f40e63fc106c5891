//! Where the time of many traces went, as text and JSON.

use polylet_trace::{
    ChangeEffect, GroupStatistics, PathStatistics, StepChange, TimeQuantiles, hex,
};
use serde_json::{Value, json};

use super::text;
use super::trace_list::micros;

/// A table with a row for each group of steps, and lines for changes of steps with their effects. `title` names the
/// groups.
pub fn path_statistics_text(
    statistics: &PathStatistics,
    title: &str,
    effects: &[(StepChange, ChangeEffect)],
) -> String {
    let quantiles = |time: &TimeQuantiles| {
        let times = [time.p50, time.p95, time.p99, time.max];
        times.map(text::duration)
    };
    let [p50, p95, p99, max] = quantiles(&statistics.total);
    let mut text = format!(
        "{} traces; total p50 {p50}, p95 {p95}, p99 {p99}, max {max}\n\n",
        statistics.traces
    );
    let titles = [
        title,
        "OWNER",
        "ON PATH",
        "SHARE",
        "P50",
        "P95",
        "P99",
        "MAX",
        "SLOWEST TRACE",
    ];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(statistics.groups.iter().map(|group| {
        let mut row = vec![
            group.label.clone(),
            if group.owner.is_empty() {
                "-"
            } else {
                group.owner
            }
            .to_owned(),
            format!("{}/{}", group.traces, statistics.traces),
            format!("{:.1} %", group.share * 100.0),
        ];
        row.extend(quantiles(&group.time));
        row.push(hex(&group.slowest));
        row
    }));
    text.push_str(&text::table(&rows));
    for (change, effect) in effects {
        text.push_str(&format!("\n{}\n", effect_line(change, effect)));
    }
    text
}

fn effect_line(change: &StepChange, effect: &ChangeEffect) -> String {
    let difference = if change.is_faster { "less" } else { "more" };
    let bound = if change.is_faster { " at best" } else { "" };
    let (before, after) = (&effect.before, &effect.after);
    format!(
        "{} {} {difference}, in {} traces: total{bound} p50 {} -> {}, p95 {} -> {}",
        change.step,
        text::duration(change.by),
        effect.traces,
        text::duration(before.p50),
        text::duration(after.p50),
        text::duration(before.p95),
        text::duration(after.p95),
    )
}

/// The same as JSON; times in microseconds.
pub fn path_statistics_json(
    statistics: &PathStatistics,
    effects: &[(StepChange, ChangeEffect)],
) -> Value {
    let group = |group: &GroupStatistics| {
        json!({
            "name": group.label,
            "owner": (!group.owner.is_empty()).then_some(group.owner),
            "traces": group.traces,
            "share": group.share,
            "us": quantiles_json(&group.time),
            "slowestTraceId": hex(&group.slowest),
        })
    };
    let effect = |(change, effect): &(StepChange, ChangeEffect)| {
        let by = micros(change.by);
        json!({
            "step": change.step,
            "changeUs": i64::try_from(by).map(|by| if change.is_faster { -by } else { by }).ok(),
            "traces": effect.traces,
            "totalUs": quantiles_json(&effect.before),
            "totalUsThen": quantiles_json(&effect.after),
        })
    };
    json!({
        "traces": statistics.traces,
        "totalUs": quantiles_json(&statistics.total),
        "groups": statistics.groups.iter().map(group).collect::<Vec<_>>(),
        "whatIf": effects.iter().map(effect).collect::<Vec<_>>(),
    })
}

pub(super) fn quantiles_json(time: &TimeQuantiles) -> Value {
    json!({
        "p50": micros(time.p50),
        "p95": micros(time.p95),
        "p99": micros(time.p99),
        "max": micros(time.max),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use polylet_trace::{StepGrouping, path_statistics, what_if};

    use super::*;
    use crate::core::trace_fixture::starts;

    fn change() -> (StepChange, ChangeEffect) {
        let change = StepChange {
            step: "cri.RunPodSandbox".to_owned(),
            is_faster: true,
            by: Duration::from_millis(50),
        };
        let effect = what_if(&starts()[..2], StepGrouping::Step, &change);
        (change, effect.unwrap())
    }

    #[test]
    fn statistics_are_a_table() {
        let statistics = path_statistics(&starts()[..2], StepGrouping::Step);
        let table = path_statistics_text(&statistics, "STEP", &[change()]);
        let expected = "\
2 traces; total p50 200.0ms, p95 245.0ms, p99 249.0ms, max 250.0ms

STEP                                 OWNER     ON PATH   SHARE    P50       P95       P99       MAX       SLOWEST TRACE
sync-coordinator/cri.RunPodSandbox   runtime   2/2       87.5 %   175.0ms   242.5ms   248.5ms   250.0ms   02020202020202020202020202020202
(unattributed)                       -         1/2       7.5 %    30.0ms    30.0ms    30.0ms    30.0ms    01010101010101010101010101010101
sync-coordinator/sync.start          polylet   1/2       5.0 %    20.0ms    20.0ms    20.0ms    20.0ms    01010101010101010101010101010101

cri.RunPodSandbox 50.0ms less, in 2 traces: total at best p50 200.0ms -> 150.0ms, p95 245.0ms -> 195.0ms
";
        assert_eq!(table, expected);
    }

    #[test]
    fn statistics_are_json() {
        let statistics = path_statistics(&starts()[1..2], StepGrouping::Owner);
        let times = json!({"p50": 250_000, "p95": 250_000, "p99": 250_000, "max": 250_000});
        let expected = json!({
            "traces": 1,
            "totalUs": times,
            "groups": [{
                "name": "runtime", "owner": "runtime", "traces": 1, "share": 1.0, "us": times,
                "slowestTraceId": "02020202020202020202020202020202",
            }],
            "whatIf": [{
                "step": "cri.RunPodSandbox", "changeUs": -50_000, "traces": 2,
                "totalUs": {"p50": 200_000, "p95": 245_000, "p99": 249_000, "max": 250_000},
                "totalUsThen": {"p50": 150_000, "p95": 195_000, "p99": 199_000, "max": 200_000},
            }],
        });
        assert_eq!(path_statistics_json(&statistics, &[change()]), expected);
    }
}
