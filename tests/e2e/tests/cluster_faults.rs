//! A node with thirty healthy pods on which one fault after another is caused and remains: a file
//! system, a CSI driver, a registry, a resolver, a CNI plugin and a runtime that do not answer,
//! clients that ask too much, and services without disk space or file descriptors. None of it
//! reaches the healthy pods, the start of another pod, or the eviction manager, and each is named in
//! `polylet status` and in an event of the pod that it concerns.
//!
//! `POLYLET_TEST_FAULTS=exec,cni` causes only these faults, by the first word of each call below;
//! `POLYLET_TEST_FILES` is the number of files in one emptyDir. A table at the end shows what each
//! step measured.

#[path = "cluster_faults/evidence.rs"]
mod evidence;
#[path = "cluster_faults/exhaustion.rs"]
mod exhaustion;
#[path = "cluster_faults/fault_run.rs"]
mod fault_run;
#[path = "cluster_faults/faulty_node.rs"]
mod faulty_node;
#[path = "cluster_faults/healthy_pods.rs"]
mod healthy_pods;
#[path = "cluster_faults/measure.rs"]
mod measure;
#[path = "cluster_faults/memory_hog.rs"]
mod memory_hog;
#[path = "cluster_faults/network.rs"]
mod network;
#[path = "cluster_faults/slow_runtime.rs"]
mod slow_runtime;
#[path = "cluster_faults/storage.rs"]
mod storage;

use evidence::Evidence;
use fault_run::FaultRun;

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn faults_reach_neither_healthy_pods_nor_new_ones() {
    if !polylet_e2e::long() {
        return;
    }
    let mut run = FaultRun::start().await;
    hung_storage(&mut run).await;
    silent_servers(&mut run).await;
    exhaustive_pods(&mut run).await;
    hung_runtime(&mut run).await;
    excessive_clients(&mut run).await;
    run.slow_evidence().await;
    full_disks(&mut run).await;
    no_descriptors(&mut run).await;
    run.finish().await;
}

async fn hung_storage(run: &mut FaultRun) {
    let named = Evidence::default()
        .condition("VolumeNotResponding", "default/hung-mount")
        .event("hung-mount-0", "VolumeNotResponding", "");
    let cause = storage::hung_file_systems;
    run.fault("fuse", "hung FUSE mounts", cause, named).await;

    // A call to a driver may take two minutes, as in the kubelet.
    let late = Evidence::default()
        .condition("VolumeNotResponding", "default/silent-driver")
        .event("silent-driver", "FailedMount", "");
    let cause = storage::silent_csi_driver;
    run.slow_fault("csi", "silent CSI driver", cause, late)
        .await;
}

async fn silent_servers(run: &mut FaultRun) {
    // The image may be large: a pull is delayed after a minute.
    let late = Evidence::default()
        .condition("PodSyncDelayed", "default/trickle")
        .event("trickle", "Pulling", "trickle.example");
    let cause = network::trickling_registry;
    run.slow_fault("registry", "registry of a byte a second", cause, late)
        .await;

    let named = Evidence::default()
        .condition("ResolverNotResponding", "probe-")
        .condition("ProbeNotAnswered", "default/unresolved-")
        .event("unresolved-0", "Unhealthy", "probe-0.example")
        .event("unresolved-1", "FailedPostStartHook", "");
    let cause = network::names_without_answer;
    run.fault("resolver", "silent resolver", cause, named).await;
}

async fn exhaustive_pods(run: &mut FaultRun) {
    let named = Evidence::default()
        .condition("ExecProbeTimeout", "default/endless-")
        .event("endless-0", "Unhealthy", "timed out");
    let cause = network::endless_commands;
    run.fault("exec", "endless commands", cause, named).await;

    let counted = Evidence::default().inodes("many-files", storage::files());
    let cause = storage::many_files;
    run.fault("files", "very many files", cause, counted).await;
}

async fn hung_runtime(run: &mut FaultRun) {
    let named = Evidence::default()
        .condition("PodSyncDelayed", "default/cni-hang")
        .event("cni-hang", "PodSyncDelayed", "sandbox");
    let cause = network::hung_cni_plugin;
    run.fault("cni", "hung CNI plugin", cause, named).await;

    let named = Evidence::default()
        .condition("", "default/slow-runtime")
        .event("slow-runtime", "PodSyncDelayed", "sandbox");
    let cause = slow_runtime::slow_calls;
    run.fault("runtime", "calls answered after 30 s", cause, named)
        .await;
}

async fn excessive_clients(run: &mut FaultRun) {
    let named = Evidence::default().condition("TooManyConnections", "127.0.0.1");
    let cause = network::silent_clients;
    run.fault("clients", "256 silent TLS clients", cause, named)
        .await;

    let named = Evidence::default().condition("TooManyReviews", "127.0.0.1");
    let cause = network::token_flood;
    run.fault("tokens", "10,000 tokens a minute", cause, named)
        .await;
    run.check("tokens", "few token reviews", network::reviews_are_few)
        .await;
}

/// What is written before a call to the runtime protects the next process instance from a second
/// sandbox or hook. On a full run directory nothing is started, and each pod says why; on a full
/// state directory pods start, as with the kubelet, whose checkpoints may fail as well.
async fn full_disks(run: &mut FaultRun) {
    let named = Evidence::default().condition("StateNotWritten", "").event(
        "simple-0",
        "FailedCheckpoint",
        "No space left",
    );
    run.passing_fault(
        "state-disk",
        "full state directory",
        exhaustion::full_state,
        named,
    )
    .await;

    let named = Evidence::default()
        .condition("StateNotWritten", "sandbox_attempts")
        .event("held-run-disk", "FailedCreatePodSandBox", "No space left");
    run.blocking_fault(
        "run-disk",
        "full run directory",
        exhaustion::full_run,
        named,
    )
    .await;
}

async fn no_descriptors(run: &mut FaultRun) {
    let named = Evidence::default()
        .condition("OutOfFileDescriptors", "")
        .event("healthy-01", "Unhealthy", "too many open files");
    let cause = exhaustion::no_file_descriptors;
    run.blocking_fault("descriptors", "no file descriptors", cause, named)
        .await;
}
