//! The table of a scenario.

use std::collections::BTreeMap;

use crate::control::Point;

/// Points of a service.
#[derive(Default)]
struct Row {
    crashed: u32,
    /// Effects that did not occur this time, such as periodic ones.
    missed: u32,
    failed: u32,
}

/// The results of a scenario's points.
pub(crate) struct Results {
    scenario: &'static str,
    rows: BTreeMap<String, Row>,
    failures: Vec<String>,
}

impl Results {
    pub(crate) fn new(scenario: &'static str) -> Self {
        Self {
            scenario,
            rows: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    /// Adds the end of the scenario with a crash at a point.
    pub(crate) fn add(&mut self, point: &Point, has_crashed: bool, end: Result<(), String>) {
        let row = self.rows.entry(point.service.clone()).or_default();
        if has_crashed {
            row.crashed += 1;
        } else {
            row.missed += 1;
        }
        let scenario = self.scenario;
        match end {
            Ok(()) => println!("{scenario}: {point}: {}", outcome(has_crashed)),
            Err(error) => {
                row.failed += 1;
                println!("{scenario}: {point}: FAILED: {error}");
                self.failures.push(format!("{scenario}: {point}: {error}"));
            }
        }
    }

    /// Prints the table; the failures.
    pub(crate) fn finish(self) -> Vec<String> {
        println!(
            "{:<22} {:<18} points  reached  failed",
            "scenario", "service"
        );
        let mut crashed = 0;
        for (service, row) in &self.rows {
            let points = row.crashed + row.missed;
            crashed += row.crashed;
            println!(
                "{:<22} {service:<18} {points:>6}  {:>7}  {:>6}",
                self.scenario, row.crashed, row.failed
            );
        }
        let mut failures = self.failures;
        let missed: u32 = self.rows.values().map(|row| row.missed).sum();
        if missed > crashed {
            failures.push(format!(
                "{}: most points were not reached: {crashed} of {}",
                self.scenario,
                crashed + missed
            ));
        }
        failures
    }
}

fn outcome(has_crashed: bool) -> &'static str {
    if has_crashed {
        "same end"
    } else {
        "not reached, same end"
    }
}

/// Ends a test.
///
/// # Panics
/// When there are failures, with all of them.
pub(crate) fn verify(failures: &[String]) {
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
