//! A comparison as text.

use super::comparison::{Comparison, GroupComparison, ShiftVerdict, StepComparison};
use crate::text::{duration, printable, probability, signed};

/// Longer names are cut off, in characters.
const MAX_NAME: usize = 80;
/// Steps without a verdict that are shorter are counted only, in microseconds.
const SHORT_US: f64 = 1000.0;

/// The comparison as a table of each shape, the one over all shapes last.
pub fn table(comparison: &Comparison) -> String {
    let [a, b] = comparison
        .names
        .each_ref()
        .map(|name| printable(name, MAX_NAME));
    let [of_a, of_b] = comparison.traces;
    let mut text = format!("A  {a}, {of_a} traces\nB  {b}, {of_b} traces\n");
    for change in &comparison.version_changes {
        let [service, from, to] =
            [&change.service, &change.from, &change.to].map(|part| printable(part, MAX_NAME));
        text.push_str(&format!("version of {service}: {from} -> {to}\n"));
    }
    for warning in &comparison.warnings {
        text.push_str(&format!("warning: {}\n", printable(warning, 400)));
    }
    for group in comparison.shapes.iter().chain(&comparison.pooled) {
        text.push_str(&of_group(group));
    }
    if comparison.shapes.is_empty() {
        text.push_str("\nno shape is in both sets\n");
    }
    text
}

fn of_group(group: &GroupComparison) -> String {
    let [a, b] = group.traces;
    let (shown, short): (Vec<_>, Vec<_>) = group.rows().partition(|row| is_shown(row));
    let titles = [
        "STEP", "OWNER", "A P50", "B P50", "A P95", "B P95", "SHIFT", "95 %", "P", "VERDICT",
    ];
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(shown.into_iter().map(cells));
    let columns = titles.len();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let shape = printable(&group.shape, MAX_NAME);
    let mut text = format!("\n{shape} ({a} and {b} traces)\n\n");
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Texts are aligned left, figures right.
            let is_text = column < 2 || column + 1 == columns;
            match is_text {
                true => line.push_str(&format!("{cell:<width$}  ")),
                false => line.push_str(&format!("{cell:>width$}  ")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if !short.is_empty() {
        text.push_str(&format!("and {} steps below 1 ms\n", short.len()));
    }
    text
}

fn is_shown(row: &StepComparison) -> bool {
    let is_long = row.p95_us.iter().any(|time| *time >= SHORT_US);
    is_long || row.verdict <= ShiftVerdict::Faster
}

fn cells(row: &StepComparison) -> [String; 10] {
    let [a, b] = row.median_us.map(duration);
    let [a_p95, b_p95] = row.p95_us.map(duration);
    let shift = row.shift_us;
    [
        printable(&row.step, MAX_NAME),
        row.owner.unwrap_or_default().to_owned(),
        a,
        b,
        a_p95,
        b_p95,
        signed(shift.estimate),
        format!("{} to {}", signed(shift.low), signed(shift.high)),
        probability(row.p),
        row.verdict.label().to_owned(),
    ]
}
