use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::diff::{DiffOptions, compare};
use crate::format::tests::{hostile, pod_start};
use crate::summary::{StepName, TraceSummary};
use crate::trace::Trace;

/// Starts that take a fifth longer from the middle of the period on.
fn summaries(count: u32) -> Vec<TraceSummary> {
    let mut rng = Rng::with_seed(2);
    let like = pod_start().summary().unwrap();
    let of = |number: u32| {
        let mut summary = like.clone();
        summary.id = u128::from(number + 1).to_be_bytes();
        summary.start = Timestamp::from_second(1_700_000_000).unwrap()
            + SignedDuration::from_secs(i64::from(number) * 7);
        for (step, time) in &mut summary.steps {
            let slow = step.operation == "cri.RunPodSandbox" && number > count / 2;
            *time =
                time.mul_f64(1.0 - rng.f64().max(1e-6).ln() * 0.1 + if slow { 0.2 } else { 0.0 });
        }
        summary.duration = summary.steps.values().sum();
        summary
    };
    (0..count).map(of).collect()
}

fn page(write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut bytes = Vec::new();
    write(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let lower = text.to_ascii_lowercase();
    for forbidden in [
        "<script",
        "<iframe",
        "<img",
        " onload=alert(1)>\"",
        "javascript:",
        "url(",
        "src=\"",
        "@import",
    ] {
        assert!(!lower.contains(forbidden), "{forbidden}");
    }
    let links: Vec<_> = lower
        .match_indices("href=")
        .map(|(at, _)| &lower[at..at + 13])
        .collect();
    assert_eq!(links, ["href=\"data:,\""]);
    assert!(lower.contains("content-security-policy\" content=\"default-src 'none';"));
    assert!(!text.contains(['\u{0}', '\u{1b}', '\u{202e}']));
    text
}

#[test]
fn report_of_a_thousand_starts_is_small() {
    let worst: Vec<Trace> = vec![pod_start(); 10];
    let summaries = summaries(1000);
    let text = page(|to| report("Pod starts", &summaries, &worst, to));
    assert!(text.len() < 5 << 20, "{}", text.len());
    assert!(text.contains("<b>1000</b>"));
    let steps: std::collections::BTreeSet<_> =
        summaries.iter().flat_map(|one| one.steps.keys()).collect();
    for step in steps {
        // In the table of steps and in the heat map.
        assert!(text.matches(&step.to_string()).count() >= 2, "{step}");
    }
    assert_eq!(text.matches("<details").count(), 10);
}

#[test]
fn comparison_has_a_row_for_each_step() {
    let all = summaries(400);
    let (a, b) = all.split_at(200);
    let comparison = compare(a, b, &DiffOptions::default());
    let text = page(|to| diff_report("Before and after", &comparison, to));
    let rows = comparison.overall().unwrap().rows().count();
    assert_eq!(text.matches("class=\"range\"").count(), rows);
    assert!(text.contains("verdict slower"));
    assert!(text.contains("do not interleave"));
}

#[test]
fn hostile_texts_do_no_harm() {
    let trace = hostile();
    let name = trace.spans[3].service.clone();
    let mut summaries = summaries(20);
    for summary in &mut summaries {
        summary.shape = name.clone();
        summary.outcome = name.clone();
        summary.versions = BTreeMap::from([(name.clone(), name.clone())]);
        let step = StepName {
            service: name.clone(),
            operation: name.clone(),
        };
        summary.steps.insert(step, Duration::from_millis(3));
    }
    let text = page(|to| report(&name, &summaries, &[trace], to));
    assert!(text.len() < 1 << 20, "{}", text.len());
    let mut options = DiffOptions::default();
    options.names[0] = name.clone();
    let comparison = compare(&summaries[..10], &summaries[10..], &options);
    page(|to| diff_report(&name, &comparison, to));
}

#[test]
fn pages_of_nothing_say_so() {
    let text = page(|to| report("Pod starts", &[], &[], to));
    assert!(text.contains("No traces."));
    let comparison = compare(&[], &[], &DiffOptions::default());
    let text = page(|to| diff_report("Nothing", &comparison, to));
    assert!(text.contains("No shape is in both sets."));
}
