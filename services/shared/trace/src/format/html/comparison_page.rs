//! The page about two sets of traces.

use std::io::{self, Write};

use maud::{Markup, html};

use super::page;
use super::step_times::MAX_NAME;
use crate::diff::{Comparison, GroupComparison, StepComparison};
use crate::text::{duration, printable, probability, signed};

/// Further steps of a shape are counted only.
const MAX_STEPS: usize = 60;
const MAX_SHAPES: usize = 20;
const WIDTH: f64 = 260.0;

/// Writes the page: the shift of each step with its interval, over all shapes and within each.
///
/// # Errors
/// Writing failed.
pub fn diff_report(title: &str, comparison: &Comparison, to: &mut dyn Write) -> io::Result<()> {
    let title = printable(title, MAX_NAME);
    let [a, b] = comparison
        .names
        .each_ref()
        .map(|name| printable(name, MAX_NAME));
    let [of_a, of_b] = comparison.traces;
    let body = html! {
        h1 { (title) }
        p class="note" { "A: " (a) ", " (of_a) " traces" br; "B: " (b) ", " (of_b) " traces"
            @for change in &comparison.version_changes {
                br; "version of " (printable(&change.service, MAX_NAME)) ": "
                (printable(&change.from, MAX_NAME)) " → " (printable(&change.to, MAX_NAME))
            }
        }
        @if let Some(overall) = comparison.overall() { (cards(overall)) }
        @for warning in &comparison.warnings { p class="warning" { (printable(warning, 400)) } }
        @if comparison.shapes.is_empty() { p { "No shape is in both sets." } }
        @for group in comparison.pooled.iter().chain(comparison.shapes.iter().take(MAX_SHAPES)) { (of_group(group)) }
        @if comparison.shapes.len() > MAX_SHAPES {
            p class="note" { "and " (comparison.shapes.len() - MAX_SHAPES) " further shapes" }
        }
        p class="note" { "The shift is Hodges and Lehmann's, with its 95 % interval. A verdict needs a significant rank test, corrected for the number of tests, and a shift beyond 1 ms and 2 %, unless other limits were chosen." }
    };
    page::write(&title, &body, to)
}

fn cards(overall: &GroupComparison) -> Markup {
    let total = &overall.total;
    let [a, b] = total.median_us;
    html! {
        div class="cards" {
            div class="card" { b { (duration(a)) } span { "median of A" } }
            div class="card" { b { (duration(b)) } span { "median of B" } }
            div class="card" { b { (signed(total.shift_us.estimate)) } span { (signed(total.shift_us.low)) " to " (signed(total.shift_us.high)) } }
            @if let Some(p95) = total.p95_shift_us {
                div class="card" { b { (signed(p95.estimate)) } span { "p95, " (signed(p95.low)) " to " (signed(p95.high)) } }
            }
            div class="card" { b { (total.verdict.label()) } span { "in total" } }
        }
    }
}

fn of_group(group: &GroupComparison) -> Markup {
    let [a, b] = group.traces;
    let rows = || group.rows().take(MAX_STEPS);
    let ends = rows().flat_map(|row| [row.shift_us.low.abs(), row.shift_us.high.abs()]);
    let reach = ends.fold(1000.0, f64::max);
    let further = group.steps.len().saturating_sub(MAX_STEPS - 1);
    html! {
        h2 { (printable(&group.shape, MAX_NAME)) }
        p class="note" { (a) " and " (b) " traces" }
        div class="scroll" { table {
            thead { tr {
                th { "Step" } th { "A p50" } th { "B p50" } th { "A p95" } th { "B p95" } th { "Shift" }
                th { "faster ← " (duration(reach)) " → slower" } th { "p" } th class="left" { "Verdict" }
            } }
            tbody { @for (at, row) in rows().enumerate() { (step_row(row, at == 0, reach)) } }
        } }
        @if further > 0 { p class="note" { "and " (further) " further steps" } }
    }
}

fn step_row(row: &StepComparison, is_total: bool, reach: f64) -> Markup {
    let verdict = row.verdict.label();
    html! {
        tr class=[is_total.then_some("total")] {
            td {
                @if let Some(owner) = row.owner { svg width="12" height="12" { title { (owner) } rect class=(owner) width="11" height="11" rx="2" {} } " " }
                (printable(&row.step, MAX_NAME))
            }
            @for time in row.median_us.iter().chain(&row.p95_us) { td { (duration(*time)) } }
            td { (signed(row.shift_us.estimate)) }
            td { (interval(row, reach)) }
            td { (probability(row.p)) }
            td class="left" { span class={ "verdict " (verdict) } { (verdict) } }
        }
    }
}

/// The interval as a line about the middle.
fn interval(row: &StepComparison, reach: f64) -> Markup {
    let x = |shift: f64| format!("{:.1}", WIDTH / 2.0 + shift / reach * (WIDTH / 2.0 - 6.0));
    let shift = row.shift_us;
    html! {
        svg class="chart" width=(WIDTH) height="18" viewBox={ "0 0 " (WIDTH) " 18" } role="img" {
            title { (signed(shift.low)) " to " (signed(shift.high)) }
            line class="axis" x1=(WIDTH / 2.0) x2=(WIDTH / 2.0) y1="0" y2="18" {}
            line class="range" x1=(x(shift.low)) x2=(x(shift.high)) y1="9" y2="9" {}
            circle class="point" cx=(x(shift.estimate)) cy="9" r="4" {}
        }
    }
}
