//! Each service is killed at each of its side effects (runtime and API calls, files, mounts, cgroups)
//! while a pod starts, stops or is evicted, and while a service is upgraded: the end is always the same.
//! Needs programs with crash points: `cargo verify -- --only crash-points`.
//!
//! Each scenario is first run once to record its points (see `polylet-crash-points`), then once per point
//! with another pod, on one node. `POLYLET_TEST_CRASH_FILTER` is a part of the points to run, such as
//! `sync-coordinator after cri.`; `POLYLET_TEST_CRASH_EVERY=5` runs every fifth.

#[path = "crash_points/cluster_pods.rs"]
mod cluster_pods;
#[path = "crash_points/control.rs"]
mod control;
#[path = "crash_points/evictions.rs"]
mod evictions;
#[path = "crash_points/orphans.rs"]
mod orphans;
#[path = "crash_points/pods.rs"]
mod pods;
#[path = "crash_points/results.rs"]
mod results;
#[path = "crash_points/run.rs"]
mod run;
#[path = "crash_points/upgrades.rs"]
mod upgrades;

#[tokio::test]
#[ignore = "needs root, a container runtime and programs with crash points: cargo verify -- --only crash-points"]
async fn pods_start_and_stop_whatever_crashes() {
    pods::start_and_stop().await;
}

#[tokio::test]
#[ignore = "needs root, a container runtime and programs with crash points: cargo verify -- --only crash-points"]
async fn evictions_end_whatever_crashes() {
    evictions::evict().await;
}

#[tokio::test]
#[ignore = "needs root, a container runtime and programs with crash points: cargo verify -- --only crash-points"]
async fn upgrades_end_whatever_crashes() {
    upgrades::upgrade_and_roll_back().await;
}

#[tokio::test]
#[ignore = "needs root, a container runtime and programs with crash points: cargo verify -- --only crash-points"]
async fn pods_of_a_cluster_start_and_stop_whatever_crashes() {
    cluster_pods::start_and_stop().await;
}
