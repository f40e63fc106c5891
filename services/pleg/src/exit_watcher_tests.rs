use std::process::{Child, Command};

use futures::FutureExt;
use polylet_model::status::ContainerPhase;

use super::*;
use crate::core::ContainerStatus;

// Contained in every line of every process's cgroup file, so they serve as container ids.
const A: &str = "/";
const B: &str = ":";

struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    fn kill(mut self) -> i32 {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        self.pid()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn running(ids: &[&str]) -> PodStatus {
    PodStatus {
        containers: ids
            .iter()
            .map(|id| ContainerStatus::new(id, ContainerPhase::Running))
            .collect(),
        ..Default::default()
    }
}

#[tokio::test]
async fn exit_is_reported_once() {
    let mut watcher = ExitWatcher::new(None, false);
    let (a, b) = (Sleeper::start(), Sleeper::start());
    assert!(!watcher.watch("u", A, a.pid()));
    assert!(!watcher.watch("u", B, b.pid()));
    assert!(!watcher.watch("u", A, a.pid()), "watched already");
    assert_eq!(watcher.len(), 2);
    assert_eq!(watcher.next().now_or_never(), None, "both run");
    a.kill();
    assert_eq!(watcher.next().await, A);
    assert_eq!(watcher.next().now_or_never(), None);
    assert_eq!(watcher.len(), 1);
}

#[tokio::test]
async fn exited_process_is_reported_where_pids_are_the_hosts() {
    let mut watcher = ExitWatcher::new(None, false);
    let gone = Sleeper::start().kill();
    assert!(
        !watcher.watch("u", A, gone),
        "may be in another pid namespace"
    );
    let other = Sleeper::start();
    assert!(!watcher.watch("u", B, other.pid()));
    assert!(watcher.watch("u", A, gone));
}

#[tokio::test]
async fn pids_of_a_runtime_in_the_same_namespace_are_ours() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("runtime.sock");
    let endpoint = format!("unix://{}", socket.display());
    assert_eq!(polylet_cri::listener_pid(&endpoint).await, None);
    let _listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let pid = polylet_cri::listener_pid(&endpoint).await.unwrap();
    assert_eq!(pid, i32::try_from(std::process::id()).unwrap());
    let shared = pidfd::shares_pid_namespace(pid);
    assert!(shared && !pidfd::shares_pid_namespace(i32::MAX));
    let gone = Sleeper::start().kill();
    let mut watcher = ExitWatcher::new(None, shared);
    assert!(watcher.watch("u", A, gone), "the first container of a node");
}

#[tokio::test]
async fn processes_outside_the_container_are_not_watched() {
    let other = Sleeper::start();
    let mut watcher = ExitWatcher::new(None, false);
    let cases = [
        (other.pid(), "0123456789abcdef"),
        (other.pid(), ""),
        (0, A),
        (-1, A),
        (i32::MIN, A),
        (i32::MAX, A),
    ];
    for (pid, id) in cases {
        assert!(!watcher.watch("u", id, pid), "{pid} {id:?}");
        assert_eq!(watcher.len(), 0, "{pid} {id:?}");
    }
}

#[tokio::test]
async fn containers_that_stopped_are_no_longer_watched() {
    let (a, b) = (Sleeper::start(), Sleeper::start());
    let mut watcher = ExitWatcher::new(None, false);
    watcher.watch("u", A, a.pid());
    watcher.watch("u", B, b.pid());
    let mut status = running(&[A, B]);
    watcher.retain_running("u", Some(&status));
    assert_eq!(watcher.next().now_or_never(), None);
    assert_eq!(watcher.len(), 2);
    status.containers[0].phase = ContainerPhase::Exited;
    watcher.retain_running("u", Some(&status));
    assert_eq!(watcher.next().now_or_never(), None);
    assert_eq!(watcher.len(), 1);
    watcher.retain_running("u", None);
    assert_eq!(watcher.next().now_or_never(), None);
    assert_eq!((watcher.len(), watcher.watches.len()), (0, 0));
}

#[tokio::test]
async fn reserved_file_descriptors_stay_free() {
    let (a, b) = (Sleeper::start(), Sleeper::start());
    let mut watcher = ExitWatcher::new(Some(RESERVED_FILES + 1), false);
    watcher.watch("u", A, a.pid());
    watcher.watch("u", B, b.pid());
    assert_eq!(watcher.len(), 1);
}
