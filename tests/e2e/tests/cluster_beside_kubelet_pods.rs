//! The same pods under the real kubelet and under Polylet: clients of the API server and the pods'
//! containers cannot tell the one from the other, but for what is named here.

use polylet_e2e::beside::cases;
use polylet_e2e::beside::{Case, Lives, Pair, differ};

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
    let found = differ::differences(&kubelet, &polylet, differ::RIGHT);
    assert!(
        found.is_empty(),
        "{} differences:\n{}",
        found.len(),
        found.join("\n")
    );
}

/// For a person to look at, where `POLYLET_TEST_LIVES` names a directory.
fn keep(who: &str, lives: &Lives) {
    let Some(dir) = std::env::var_os("POLYLET_TEST_LIVES") else {
        return;
    };
    let mut text = String::new();
    for (pod, life) in lives {
        for (at, lines) in life {
            for line in lines {
                text.push_str(&format!("{pod}, {at}: {line}\n"));
            }
        }
    }
    std::fs::write(std::path::Path::new(&dir).join(who), text).unwrap();
}
