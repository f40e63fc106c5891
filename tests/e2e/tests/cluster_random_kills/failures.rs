//! What is done to the node, the runtime and the API server.

use std::fs;

use polylet_e2e::ok;
use polylet_harness::node::SERVICES;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

/// Causes one failure, or ends one; its name.
pub(crate) async fn cause(
    cluster: &mut Cluster,
    node: &mut Node,
    random: &mut fastrand::Rng,
) -> &'static str {
    let service = SERVICES[random.usize(..SERVICES.len())];
    match random.u32(..100) {
        0..50 => {
            kill(node, &[service]).await;
            "a service killed"
        }
        50..60 => {
            kill(node, &SERVICES).await;
            "all services killed"
        }
        60..65 => {
            ok(node.kill("supervisor").await);
            ok(node.spawn());
            "supervisor killed"
        }
        65..75 => {
            // The service's process starts a moment later, or is there already.
            let _ = fs::remove_file(node.socket(service));
            "a socket removed"
        }
        75..82 => {
            exceed_memory(node, service).await;
            "memory limit hit"
        }
        82..92 => {
            node.containerd.down(true);
            kill(node, &[service]).await;
            ok(node.containerd.up().await);
            "containerd and a service killed"
        }
        _ => {
            cluster.stop_api();
            node.containerd.down(true);
            kill(node, &SERVICES).await;
            ok(node.containerd.up().await);
            ok(cluster.start_api().await);
            "API server, containerd and all services killed"
        }
    }
}

/// Starts what is not running.
pub(crate) async fn repair(cluster: &mut Cluster, node: &mut Node) {
    ok(node.wait_serving().await);
    ok(cluster.wait_node_ready("node").await);
    // A removed socket is there again.
    for service in SERVICES {
        ok(until(format!("the socket of {service}"), || async {
            match tokio::net::UnixStream::connect(node.socket(service)).await {
                Ok(_) => Poll::Ready(()),
                Err(error) => Poll::Pending(error.to_string()),
            }
        })
        .await);
    }
}

/// The process of a service.
pub(crate) async fn pid_of(node: &Node, service: &str) -> Option<u32> {
    // Without a supervisor there is no answer.
    let services = node.services().await.ok()?;
    let found = services.iter().find(|one| one.name == service)?;
    (found.pid != 0).then_some(found.pid)
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended.
        let _ = kill_process(pid, signal);
    }
}

async fn kill(node: &Node, services: &[&str]) {
    let Ok(all) = node.services().await else {
        return;
    };
    for service in all.iter().filter(|one| one.pid != 0) {
        if services.contains(&service.name.as_str()) {
            signal(service.pid, Signal::KILL);
        }
    }
}

/// Leaves a process no memory beyond what it has.
async fn exceed_memory(node: &Node, service: &str) {
    let Some(pid) = pid_of(node, service).await else {
        return;
    };
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    let limit = Rlimit {
        current: Some(1),
        maximum: Some(1),
    };
    // It may have ended.
    let _ = prlimit(Some(pid), Resource::Data, limit);
}
