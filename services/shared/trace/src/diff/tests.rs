use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;

use super::*;
use crate::summary::{NODE, StepName};

const STEPS: [(&str, &str, f64); 6] = [
    ("sync-coordinator", "sync.sandbox", 300.0),
    ("sync-coordinator", "cri.CreateContainer", 60.0),
    ("sync-coordinator", "cri.StartContainer", 90.0),
    ("volume-manager", "volume.mount", 12.0),
    ("status-reporter", "status.join", 2.0),
    ("pleg", "pleg.observe", 0.4),
];

/// A start with noise: a skewed one in each step, and one in the step that it has only at times.
fn start(rng: &mut Rng, number: u32, more: &[(&str, f64)]) -> TraceSummary {
    let mut steps = BTreeMap::new();
    for (service, operation, millis) in STEPS {
        let noise = 1.0 - rng.f64().max(1e-9).ln() * 0.03;
        let longer = more.iter().find(|(name, _)| *name == operation);
        let time = millis * noise + longer.map_or(0.0, |(_, millis)| *millis);
        let is_rare = operation == "volume.mount" && rng.bool();
        if !is_rare {
            steps.insert(
                StepName {
                    service: service.to_owned(),
                    operation: operation.to_owned(),
                },
                Duration::from_secs_f64(time / 1000.0),
            );
        }
    }
    TraceSummary {
        id: u128::from(rng.u64(..)).to_be_bytes(),
        root: "pod.start".to_owned(),
        uid: String::new(),
        namespace: "default".to_owned(),
        name: format!("pod-{number}"),
        shape: "1 container, volumes".to_owned(),
        outcome: "ready".to_owned(),
        start: Timestamp::from_second(1_700_000_000 + i64::from(number)).unwrap(),
        duration: steps.values().sum(),
        steps,
        versions: BTreeMap::from([("pleg".to_owned(), "0.1.0".to_owned())]),
    }
}

/// Starts of two sets in turn.
fn starts(rng: &mut Rng, count: u32, more: &[(&str, f64)]) -> [Vec<TraceSummary>; 2] {
    let mut sets = [Vec::new(), Vec::new()];
    for number in 0..count {
        let [a, b] = &mut sets;
        a.push(start(rng, 2 * number, &[]));
        b.push(start(rng, 2 * number + 1, more));
    }
    sets
}

fn verdicts(group: &GroupComparison, verdict: ShiftVerdict) -> BTreeSet<&str> {
    let rows = group.rows().filter(|row| row.verdict == verdict);
    rows.map(|row| row.step.as_str()).collect()
}

#[test]
fn sets_that_do_not_differ_seldom_seem_to() {
    let mut rng = Rng::with_seed(1);
    let mut wrong = 0;
    for _ in 0..1000 {
        let [a, b] = starts(&mut rng, 30, &[]);
        let comparison = compare(&a, &b, &DiffOptions::default());
        let differs =
            [ShiftVerdict::Slower, ShiftVerdict::Faster].map(|which| comparison.has(which));
        wrong += u32::from(differs != [false, false]);
    }
    println!("{wrong} of 1000 sets seem to differ");
    assert!(wrong <= 50, "{wrong} of 1000");
}

#[test]
fn the_step_that_became_slower_is_found() {
    for seed in 0..50 {
        let mut rng = Rng::with_seed(seed);
        let [a, b] = starts(&mut rng, 30, &[("cri.CreateContainer", 20.0)]);
        let comparison = compare(&a, &b, &DiffOptions::default());
        let overall = comparison.overall().unwrap();
        let slower = verdicts(overall, ShiftVerdict::Slower);
        let expected = ["sync-coordinator/cri.CreateContainer", "total"];
        assert_eq!(slower, BTreeSet::from(expected), "seed {seed}");
        assert_eq!(verdicts(overall, ShiftVerdict::Faster), BTreeSet::new());
        assert_eq!(comparison.warnings, [""; 0]);
        let shift = overall.steps[0].shift_us.estimate;
        assert!(
            (18_000.0..=22_000.0).contains(&shift),
            "seed {seed}: {shift}"
        );
        let back = compare(&b, &a, &DiffOptions::default());
        assert_eq!(
            verdicts(back.overall().unwrap(), ShiftVerdict::Faster),
            slower
        );
    }
}

#[test]
fn small_shifts_are_the_same_and_few_traces_too_few() {
    let mut rng = Rng::with_seed(3);
    let [a, b] = starts(&mut rng, 400, &[("pleg.observe", 0.5)]);
    let comparison = compare(&a, &b, &DiffOptions::default());
    let overall = comparison.overall().unwrap();
    assert!(verdicts(overall, ShiftVerdict::Same).contains("pleg/pleg.observe"));
    assert!(overall.total.p95_shift_us.is_some());
    let few = compare(&a[..9], &b, &DiffOptions::default());
    let few = few.overall().unwrap();
    assert_eq!(
        verdicts(few, ShiftVerdict::TooFew).len(),
        few.steps.len() + 1
    );
    assert_eq!(compare(&[], &[], &DiffOptions::default()).overall(), None);
}

/// The second set has more of the slow shape, and is not slower.
#[test]
fn the_mixture_of_shapes_does_not_matter() {
    let mut rng = Rng::with_seed(4);
    let [mut a, mut b] = starts(&mut rng, 60, &[]);
    let slow = |summary: &mut TraceSummary| {
        summary.shape = "2 containers".to_owned();
        summary.duration += Duration::from_secs(1);
        for time in summary.steps.values_mut() {
            *time += Duration::from_millis(200);
        }
    };
    a.iter_mut().take(15).for_each(slow);
    b.iter_mut().take(45).for_each(slow);
    let comparison = compare(&a, &b, &DiffOptions::default());
    let shapes: Vec<_> = comparison
        .shapes
        .iter()
        .map(|group| (group.shape.as_str(), group.traces))
        .collect();
    assert_eq!(
        shapes,
        [
            ("1 container, volumes", [45, 15]),
            ("2 containers", [15, 45])
        ]
    );
    let pooled = comparison.pooled.as_ref().unwrap();
    assert_eq!(
        verdicts(pooled, ShiftVerdict::Slower),
        BTreeSet::new(),
        "{pooled:?}"
    );
    // A shift in all shapes is found in all of them together.
    for summary in &mut b {
        summary.duration += Duration::from_millis(50);
    }
    let comparison = compare(&a, &b, &DiffOptions::default());
    let pooled = comparison.pooled.as_ref().unwrap();
    assert_eq!(
        verdicts(pooled, ShiftVerdict::Slower),
        BTreeSet::from(["total"])
    );
}

#[test]
fn other_causes_are_named() {
    let mut rng = Rng::with_seed(5);
    let [mut a, _] = starts(&mut rng, 12, &[]);
    let mut b: Vec<_> = (100..112)
        .map(|number| start(&mut rng, number, &[]))
        .collect();
    b[0] = a[0].clone();
    b[0].start = b[1].start;
    b[1].outcome = "failed".to_owned();
    a[3].versions.insert("prober".to_owned(), "1".to_owned());
    a[4].versions.insert("prober".to_owned(), "2".to_owned());
    for summary in &mut b {
        summary
            .versions
            .insert("pleg".to_owned(), "0.2.0".to_owned());
    }
    let mut options = DiffOptions::default();
    options.names[0] = "before.jsonl".to_owned();
    for (set, node) in [(&mut a, "n1"), (&mut b, "n2")] {
        for summary in set {
            summary.versions.insert(NODE.to_owned(), node.to_owned());
        }
    }
    let comparison = compare(&a, &b, &options);
    let expected = [
        "1 traces are in both sets",
        "1 traces of B are not compared; before.jsonl has none of their shape and outcome",
        "the periods of before.jsonl and B do not interleave; what else changed in between counts, too",
        "the node differs: n1 and n2",
        "before.jsonl has several versions of prober: 1, 2",
    ];
    assert_eq!(comparison.warnings, expected);
    let change = &comparison.version_changes[..];
    assert_eq!(
        change,
        [VersionChange {
            service: "pleg".to_owned(),
            from: "0.1.0".to_owned(),
            to: "0.2.0".to_owned()
        }]
    );
    let text = table(&comparison);
    assert!(
        text.contains("version of pleg: 0.1.0 -> 0.2.0\nwarning: 1 traces"),
        "{text}"
    );
}

#[test]
fn text_and_json_have_the_same_rows() {
    let mut rng = Rng::with_seed(8);
    let [a, b] = starts(&mut rng, 30, &[("cri.CreateContainer", 20.0)]);
    let comparison = compare(&a, &b, &DiffOptions::default());
    let text = table(&comparison);
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let first = |name: &str| {
        let row = rows.iter().find(|row| row.first() == Some(&name));
        row.unwrap_or_else(|| panic!("{text}"))
    };
    assert_eq!(first("total").last(), Some(&"slower"));
    assert_eq!(first("sync-coordinator/cri.CreateContainer")[1], "runtime");
    assert_eq!(first("and")[..], ["and", "1", "steps", "below", "1", "ms"]);
    let json = serde_json::to_value(&comparison).unwrap();
    assert_eq!(json["shapes"][0]["total"]["verdict"], "slower");
    assert_eq!(
        json["shapes"][0]["steps"][0]["step"],
        "sync-coordinator/cri.CreateContainer"
    );
    assert!(json["shapes"][0]["steps"][0]["shiftUs"]["low"].as_f64() > Some(15_000.0));
}

#[test]
fn hostile_names_do_no_harm_in_a_table() {
    let mut rng = Rng::with_seed(9);
    let [mut a, mut b] = starts(&mut rng, 10, &[]);
    let hostile = format!("\u{1b}[2J\"</script>\n\0{}", "x".repeat(10 << 20));
    for summary in a.iter_mut().chain(&mut b) {
        summary.shape = hostile.clone();
        let step = StepName {
            service: hostile.clone(),
            operation: hostile.clone(),
        };
        summary.steps.insert(step, Duration::from_millis(50));
    }
    let text = table(&compare(&a, &b, &DiffOptions::default()));
    assert!(text.len() < 5000, "{}", text.len());
    assert!(!text.contains(['\u{1b}', '\0']));
}
