//! The same pods under the real kubelet and under Polylet: clients of the API server and the pods'
//! containers cannot tell the one from the other, but for what is named here.

use polylet_e2e::beside::cases;
use polylet_e2e::beside::{Case, Lives, Pair, differ, right};

#[tokio::test]
#[ignore = "needs root, containerd and the programs of a cluster: cargo verify"]
async fn pods_live_as_with_the_kubelet() {
    beside(cases::few()).await;
}

#[tokio::test]
#[ignore = "minutes; by hand: POLYLET_TEST_LONG=1"]
async fn all_pods_live_as_with_the_kubelet() {
    if std::env::var_os("POLYLET_TEST_LONG").is_none() {
        return;
    }
    let only = std::env::var("POLYLET_TEST_PODS").unwrap_or_default();
    let only: Vec<&str> = only.split_whitespace().collect();
    let mut all = cases::all();
    let chosen =
        |case: &Case| only.is_empty() || only.iter().any(|name| case.name.starts_with(name));
    for at_once in &mut all {
        at_once.retain(chosen);
    }
    all.retain(|at_once| !at_once.is_empty());
    beside(all).await;
}

async fn beside(cases: Vec<Vec<Case>>) {
    let mut pair = Pair::prepare().await;
    let kubelet = pair.under_the_kubelet(&cases).await;
    keep("kubelet", &kubelet);
    let polylet = pair.under_polylet(&cases).await;
    keep("polylet", &polylet);
    pair.remove();
    let found = differ::differences(&kubelet, &polylet, &right::all());
    eprintln!(
        "{} lives, {} differences that are right",
        kubelet.len(),
        found.right.len()
    );
    keep_lines("right", &found.right);
    keep_lines("wrong", &found.wrong);
    let idle = found.idle.iter();
    let idle: Vec<_> = idle.map(|right| format!("{right:?}")).collect();
    keep_lines("idle", &idle);
    assert!(
        found.wrong.is_empty(),
        "{} differences:\n{}",
        found.wrong.len(),
        found.wrong.join("\n")
    );
}

fn keep(who: &str, lives: &Lives) {
    let mut all = Vec::new();
    for (pod, life) in lives {
        for (at, lines) in life {
            all.extend(lines.iter().map(|line| format!("{pod}, {at}: {line}")));
        }
    }
    keep_lines(who, &all);
}

/// For a person to look at, where `POLYLET_TEST_LIVES` names a directory.
fn keep_lines(what: &str, lines: &[String]) {
    let Some(dir) = std::env::var_os("POLYLET_TEST_LIVES") else {
        return;
    };
    let text = lines.join("\n") + "\n";
    std::fs::write(std::path::Path::new(&dir).join(what), text).unwrap();
}
