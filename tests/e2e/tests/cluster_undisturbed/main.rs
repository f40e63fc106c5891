//! Services are restarted, killed, upgraded and rolled back, one at a time and all at once, while pods run,
//! others come and go, and clients call without pause. No container is restarted, no readiness changes, no
//! call is refused, no status is sent twice, and every pod of the churn starts and ends.
//!
//! Ten pods and one round of restarts and kills by default; with `POLYLET_TEST_LONG=1` fifty pods and twenty
//! rounds with upgrades and rollbacks (`POLYLET_TEST_ROUNDS` is another number).

use std::time::Duration;

use polylet_e2e::programs::{another_build, installed};
use polylet_e2e::steps::Steps;
use polylet_e2e::{node_with, ok};
use polylet_harness::node::SERVICES;

mod churn;
mod clients;
mod disturbance;
mod gap;
mod standing_pods;
mod statuses;

use churn::Churn;
use clients::Clients;
use disturbance::{Disturbance, disturb};
use gap::Gaps;
use standing_pods::StandingPods;
use statuses::Statuses;

/// The churn goes on after the last disturbance, so that pods start without one, too.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// Restarts of each service on the node at rest.
const SAMPLES: u32 = 5;

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn nothing_is_disturbed() {
    let is_long = std::env::var_os("POLYLET_TEST_LONG").is_some();
    let (pods, default_rounds) = if is_long { (50, 20) } else { (10, 1) };
    let rounds = std::env::var("POLYLET_TEST_ROUNDS").ok();
    let rounds = rounds.and_then(|text| text.parse().ok());
    let rounds = rounds.unwrap_or(default_rounds);

    let (active, other) = (installed(), another_build());
    let cluster = polylet_e2e::cluster().await;
    let mut options = ok(cluster.node_options("node"));
    options.bin_dir = Some(active.path().to_owned());
    let mut node = node_with(options).await;
    ok(cluster.wait_node_ready("node").await);
    let standing = StandingPods::start(&cluster, &node, pods).await;
    ok(node.wait_in_step().await);
    // Nothing else takes the processors' time, which the gaps of the rounds contain.
    let mut at_rest = Gaps::default();
    for _ in 0..SAMPLES {
        for service in SERVICES {
            let restart = Disturbance::Restart(service);
            disturb(&mut node, other.path(), restart, &mut at_rest).await;
        }
    }
    println!("a node at rest\n{at_rest}");
    let clients = Clients::start(&cluster, &node, standing.addresses()).await;
    let statuses = Statuses::follow(&cluster).await;
    let churn = Churn::start(&cluster);
    let mut gaps = Gaps::default();
    let mut steps = Steps::new();
    let audited = ok(cluster.requests(0)).1;
    for round in 1..=rounds {
        for disturbance in Disturbance::all(is_long) {
            steps
                .run(&format!("round {round}: {disturbance}"), async {
                    disturb(&mut node, other.path(), disturbance, &mut gaps).await;
                    standing.assert_undisturbed(&cluster, &node).await;
                    clients.assert_answered(disturbance.may_break_calls());
                })
                .await;
        }
    }
    tokio::time::sleep(AFTERWARDS).await;
    let ended = churn.end().await;
    println!("pods start and end\n{gaps}");
    println!("{clients}");
    steps
        .run("every pod of the churn started and ended", async {
            println!("{} pods came and went", ended.pods);
            assert_eq!(ended.problems, Vec::<String>::new());
            assert!(ended.pods > SERVICES.len(), "{} pods", ended.pods);
        })
        .await;
    steps
        .run("statuses are sent once", async {
            let (requests, _) = ok(cluster.requests(audited));
            statuses.assert_sent_once(&requests).await;
        })
        .await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}
