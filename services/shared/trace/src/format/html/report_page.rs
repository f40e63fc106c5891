//! The page about many traces.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};

use super::heat_map::heat_map;
use super::histogram::histogram;
use super::page;
use super::step_times::{MAX_NAME, StepTimes, steps, totals};
use crate::format::svg::waterfall;
use crate::span::hex;
use crate::summary::{NODE, TraceSummary};
use crate::text::{duration, printable};
use crate::trace::Trace;

/// Further steps, which took least time, are counted only.
const MAX_STEPS: usize = 40;
const MAX_HEAT_ROWS: usize = 16;
const MAX_SHAPES: usize = 20;
/// Further traces are left out, and further spans of each.
const MAX_WORST: usize = 20;
const MAX_ROWS: usize = 150;

/// Writes the page: where the time on the critical paths went, step by step and over the period, and the drawings of
/// the `worst` traces, in their order.
///
/// # Errors
/// Writing failed.
pub fn report(
    title: &str,
    summaries: &[TraceSummary],
    worst: &[Trace],
    to: &mut dyn Write,
) -> io::Result<()> {
    let mut summaries: Vec<&TraceSummary> = summaries.iter().collect();
    summaries.sort_by_key(|summary| (summary.start, summary.id));
    let totals = totals(&summaries);
    let steps = steps(&summaries);
    let title = printable(title, MAX_NAME);
    let body = html! {
        h1 { (title) }
        (heading(&summaries))
        (cards(&totals))
        @if !summaries.is_empty() {
            h2 { "Where the time went" }
            p class="note" { "Time on the critical path: what the end of each trace waited for. Quantiles are those of the traces that waited for the step; each histogram ends at its 99th percentile." }
            (step_table(&totals, &steps))
            h2 { "When" }
            p class="note" { "The median of each step over the period. The darker, the nearer to the highest of its row." }
            @let starts: Vec<Timestamp> = summaries.iter().map(|summary| summary.start).collect();
            @let rows: Vec<&StepTimes> = std::iter::once(&totals).chain(steps.iter().take(MAX_HEAT_ROWS)).collect();
            div class="scroll" { (heat_map(&starts, &rows)) }
            h2 { "What was started" }
            (shape_table(&summaries))
        }
        @if !worst.is_empty() {
            h2 { "The slowest traces" }
            @for (at, trace) in worst.iter().take(MAX_WORST).enumerate() { (of_trace(trace, at == 0)) }
        }
    };
    page::write(&title, &body, to)
}

fn heading(summaries: &[&TraceSummary]) -> Markup {
    let period = summaries.first().zip(summaries.last());
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (service, version) in summaries.iter().flat_map(|summary| &summary.versions) {
        versions.entry(version).or_default().insert(service);
    }
    html! {
        p class="note" {
            @match period {
                Some((first, last)) => { (format!("{:.0}", first.start)) " to " (format!("{:.0}", last.start)) },
                None => "No traces.",
            }
            @for (version, services) in versions.iter().take(12) {
                @let services: Vec<&str> = services.iter().copied().collect();
                br;
                @if services == [NODE] { "node " (printable(version, MAX_NAME)) }
                @else { "version " (printable(version, MAX_NAME)) ": " (printable(&services.join(", "), 300)) }
            }
        }
    }
}

fn cards(totals: &StepTimes) -> Markup {
    let quantiles = [
        ("median", 0.5),
        ("p95", 0.95),
        ("p99", 0.99),
        ("slowest", 1.0),
    ];
    html! {
        div class="cards" {
            div class="card" { b { (totals.times.len()) } span { "traces" } }
            @for (name, q) in quantiles {
                div class="card" { b { (duration(totals.quantile(q))) } span { (name) } }
            }
        }
    }
}

fn step_table(totals: &StepTimes, steps: &[StepTimes]) -> Markup {
    html! {
        div class="scroll" { table {
            thead { tr {
                th { "Step" } th class="left" { "Owner" } th { "Traces" } th { "Share" }
                th { "p50" } th { "p95" } th { "p99" } th { "Max" } th class="left" { "Histogram" }
            } }
            tbody {
                (step_row(totals, totals.sum))
                @for step in steps.iter().take(MAX_STEPS) { (step_row(step, totals.sum)) }
            }
        } }
        @if steps.len() > MAX_STEPS {
            p class="note" { "and " (steps.len() - MAX_STEPS) " further steps that took less" }
        }
    }
}

fn step_row(step: &StepTimes, sum: i128) -> Markup {
    let share = step.sum as f64 * 100.0 / sum.max(1) as f64;
    let colour = if step.owner.is_empty() {
        "heat"
    } else {
        step.owner
    };
    html! {
        tr class=[step.owner.is_empty().then_some("total")] {
            td { (step.name) }
            td class="left" {
                @if !step.owner.is_empty() {
                    svg width="12" height="12" { rect class=(step.owner) width="11" height="11" rx="2" {} } " " (step.owner)
                }
            }
            td { (step.present.len()) }
            td { (format!("{share:.1} %")) }
            @for q in [0.5, 0.95, 0.99, 1.0] { td { (duration(step.quantile(q))) } }
            td class="left" { (histogram(&step.present, 150.0, 22.0, colour)) }
        }
    }
}

fn shape_table(summaries: &[&TraceSummary]) -> Markup {
    let mut shapes: BTreeMap<(&str, &str), Vec<&TraceSummary>> = BTreeMap::new();
    for summary in summaries {
        let of_shape = shapes.entry((&summary.shape, &summary.outcome));
        of_shape.or_default().push(summary);
    }
    let mut shapes: Vec<_> = shapes.into_iter().collect();
    shapes.sort_by_key(|(_, traces)| std::cmp::Reverse(traces.len()));
    html! {
        div class="scroll" { table {
            thead { tr { th { "Shape" } th class="left" { "Outcome" } th { "Traces" } th { "p50" } th { "p95" } th { "Max" } th class="left" { "Durations" } } }
            tbody { @for ((shape, outcome), traces) in shapes.iter().take(MAX_SHAPES) {
                @let times = totals(traces);
                tr {
                    td { (printable(shape, MAX_NAME)) }
                    td class="left" { (printable(if outcome.is_empty() { "incomplete" } else { outcome }, MAX_NAME)) }
                    td { (traces.len()) }
                    @for q in [0.5, 0.95, 1.0] { td { (duration(times.quantile(q))) } }
                    td class="left" { (histogram(&times.present, 150.0, 22.0, "heat")) }
                }
            } }
        } }
        @if shapes.len() > MAX_SHAPES { p class="note" { "and " (shapes.len() - MAX_SHAPES) " further shapes" } }
    }
}

fn of_trace(trace: &Trace, is_open: bool) -> Markup {
    let summary = trace.summary();
    let title = summary.as_ref().map_or_else(
        || hex(&trace.id),
        |summary| {
            let pod = format!("{}/{}", summary.namespace, summary.name);
            let took = duration(summary.duration.as_secs_f64() * 1e6);
            format!("{took} · {pod} · {}", summary.shape)
        },
    );
    html! {
        details open[is_open] {
            summary { (printable(&title, 200)) }
            (waterfall(trace, MAX_ROWS, PreEscaped(String::new())))
        }
    }
}
