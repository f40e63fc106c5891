use std::process::{Child, Command};

use futures::FutureExt;
use polylet_wire::pleg::v1::Container;

use super::*;

// Every line of a process's cgroup file has these, so they pass for container ids.
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

    fn end(mut self) -> i32 {
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

fn running(ids: &[&str]) -> PodState {
    let container = |id: &&str| Container {
        id: (*id).to_owned(),
        phase: ContainerPhase::Running.into(),
        ..Default::default()
    };
    PodState {
        containers: ids.iter().map(container).collect(),
        ..Default::default()
    }
}

#[tokio::test]
async fn the_end_of_a_process_is_told_once() {
    let mut exits = Exits::new(None, false);
    let (a, b) = (Sleeper::start(), Sleeper::start());
    assert!(!exits.follow("u", A, a.pid()));
    assert!(!exits.follow("u", B, b.pid()));
    assert!(!exits.follow("u", A, a.pid()), "waited for already");
    assert_eq!(exits.len(), 2);
    assert_eq!(exits.next().now_or_never(), None, "both run");
    a.end();
    assert_eq!(exits.next().await, A);
    assert_eq!(exits.next().now_or_never(), None);
    assert_eq!(exits.len(), 1);
}

#[tokio::test]
async fn what_has_ended_already_is_told_where_numbers_can_be_trusted() {
    let mut exits = Exits::new(None, false);
    let gone = Sleeper::start().end();
    assert!(!exits.follow("u", A, gone), "perhaps of another namespace");
    let other = Sleeper::start();
    assert!(!exits.follow("u", B, other.pid()));
    assert!(exits.follow("u", A, gone));
}

#[tokio::test]
async fn other_processes_are_not_waited_for() {
    let other = Sleeper::start();
    let mut exits = Exits::new(None, false);
    let cases = [
        (other.pid(), "0123456789abcdef"),
        (other.pid(), ""),
        (0, A),
        (-1, A),
        (i32::MIN, A),
        (i32::MAX, A),
    ];
    for (pid, id) in cases {
        assert!(!exits.follow("u", id, pid), "{pid} {id:?}");
        assert_eq!(exits.len(), 0, "{pid} {id:?}");
    }
}

#[tokio::test]
async fn what_no_longer_runs_is_let_go() {
    let (a, b) = (Sleeper::start(), Sleeper::start());
    let mut exits = Exits::new(None, false);
    exits.follow("u", A, a.pid());
    exits.follow("u", B, b.pid());
    let mut state = running(&[A, B]);
    exits.keep("u", Some(&state));
    assert_eq!(exits.next().now_or_never(), None);
    assert_eq!(exits.len(), 2);
    state.containers[0].phase = ContainerPhase::Exited.into();
    exits.keep("u", Some(&state));
    assert_eq!(exits.next().now_or_never(), None);
    assert_eq!(exits.len(), 1);
    exits.keep("u", None);
    assert_eq!(exits.next().now_or_never(), None);
    assert_eq!((exits.len(), exits.waits.len()), (0, 0));
}

#[tokio::test]
async fn descriptors_are_left_for_others() {
    let (a, b) = (Sleeper::start(), Sleeper::start());
    let mut exits = Exits::new(Some(SPARE + 1), false);
    exits.follow("u", A, a.pid());
    exits.follow("u", B, b.pid());
    assert_eq!(exits.len(), 1);
}
