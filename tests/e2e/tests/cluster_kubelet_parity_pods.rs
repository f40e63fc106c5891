//! The same pods under the real kubelet and under Polylet: API clients and containers observe the
//! same, except for the expected differences.

use polylet_e2e::kubelet_parity::cases;
use polylet_e2e::kubelet_parity::{Case, ParityRun, Timelines, diff, expected_differences};
use polylet_e2e::steps::Steps;

#[tokio::test]
#[ignore = "needs root, containerd and the programs of a cluster: cargo verify"]
async fn pod_lifecycles_match_the_kubelet() {
    run_parity(cases::few()).await;
}

#[tokio::test]
#[ignore = "minutes; by hand: POLYLET_TEST_LONG=1"]
async fn all_pod_lifecycles_match_the_kubelet() {
    if std::env::var_os("POLYLET_TEST_LONG").is_none() {
        return;
    }
    let only = std::env::var("POLYLET_TEST_PODS").unwrap_or_default();
    let only: Vec<&str> = only.split_whitespace().collect();
    let mut all = cases::all();
    let selected =
        |case: &Case| only.is_empty() || only.iter().any(|name| case.name.starts_with(name));
    for at_once in &mut all {
        at_once.retain(selected);
    }
    all.retain(|at_once| !at_once.is_empty());
    run_parity(all).await;
}

async fn run_parity(cases: Vec<Vec<Case>>) {
    let mut run = ParityRun::prepare().await;
    let mut steps = Steps::new();
    let kubelet = steps
        .require("pods under the kubelet", run.run_kubelet(&cases))
        .await;
    write_timelines("kubelet", &kubelet);
    let polylet = steps
        .require("pods under Polylet", run.run_polylet(&cases))
        .await;
    steps.finish();
    write_timelines("polylet", &polylet);
    run.remove();
    let found = diff::differences(&kubelet, &polylet, &expected_differences::all());
    eprintln!(
        "{} pods, {} expected differences",
        kubelet.len(),
        found.expected.len()
    );
    write_lines("expected", &found.expected);
    write_lines("unexpected", &found.unexpected);
    let unused = found.unused.iter();
    let unused: Vec<_> = unused.map(|expected| format!("{expected:?}")).collect();
    write_lines("unused", &unused);
    assert!(
        found.unexpected.is_empty(),
        "{} differences:\n{}",
        found.unexpected.len(),
        found.unexpected.join("\n")
    );
}

fn write_timelines(agent: &str, timelines: &Timelines) {
    let mut all = Vec::new();
    for (pod, timeline) in timelines {
        for (at, lines) in timeline {
            all.extend(lines.iter().map(|line| format!("{pod}, {at}: {line}")));
        }
    }
    write_lines(agent, &all);
}

/// Writes the timelines into the directory named by `POLYLET_TEST_TIMELINES`.
fn write_lines(what: &str, lines: &[String]) {
    let Some(dir) = std::env::var_os("POLYLET_TEST_TIMELINES") else {
        return;
    };
    let text = lines.join("\n") + "\n";
    std::fs::write(std::path::Path::new(&dir).join(what), text).unwrap();
}
