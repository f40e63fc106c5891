//! The coordinator against a world that only notes what it is asked for.

use std::cell::RefCell;
use std::time::Duration;

use polylet_kit::CancellationToken;
use polylet_watch::Update;
use polylet_wire::pleg::v1::{PodState, Sandbox, WatchRuntimeResponse};
use polylet_wire::podconfig::v1::Pod;
use polylet_wire::time::to_wire;
use serde_json::json;
use tracing::Span;

use super::*;
use crate::act::Job;
use crate::core::learn::Outcome;
use crate::core::step::{Step, StepKey};

mod declares;
mod sizes;

#[derive(Default)]
struct Notes {
    steps: RefCell<Vec<(String, Step)>>,
    /// Under which names volumes were declared, pod by pod; and of how many pods in the end.
    declared: RefCell<Vec<(u32, String)>>,
    completed: RefCell<Vec<(u32, u32)>>,
    refreshed: RefCell<Vec<String>>,
}

impl Outside for Notes {
    fn carry_out(&self, job: Job, _: Span) -> Option<CancellationToken> {
        if job.step == Step::ApplyVolumes {
            let declared = (job.declarer, job.pod.uid.clone());
            self.declared.borrow_mut().push(declared);
        }
        self.steps.borrow_mut().push((job.pod.uid, job.step));
        None
    }

    fn refresh(&self, pod: &PodRef, _: u64, _: Span) {
        self.refreshed.borrow_mut().push(pod.uid.clone());
    }

    fn complete(&self, declarer: u32, pods: u32) {
        self.completed.borrow_mut().push((declarer, pods));
    }

    fn keep(&self, _: &str, _: &Lifecycle) {}

    fn forget(&self, _: &str) {}

    fn leftovers(&self) {}
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// A coordinator that has heard everything, and that nothing is there.
fn heard(kept: Kept) -> (Coordinator, Rc<Notes>) {
    let notes = Rc::new(Notes::default());
    let settings = Settings {
        parallel_starts: 10,
        crash_cap: Duration::from_secs(300),
        allowed_unsafe_sysctls: Vec::new(),
        room: Room::default(),
    };
    let outside = Rc::clone(&notes) as Rc<dyn Outside>;
    let mut all = Coordinator::new(outside, Store::new("life"), settings, kept, at(0));
    let runtime = WatchRuntimeResponse {
        ready: true,
        network_ready: true,
        ..Default::default()
    };
    let runtime = polylet_watch::Value::Current(runtime);
    all.take(Input::Runtime(runtime), at(0));
    all.take(Input::Pods(Update::Synced), at(0));
    (all, notes)
}

fn sources_heard(all: &mut Coordinator) {
    for source in SOURCES {
        all.take(Input::Config(source.into(), Update::Synced), at(0));
    }
}

fn state(uid: &str, told: i64) -> Update<String, PodState> {
    let pod = PodRef {
        uid: uid.to_owned(),
        namespace: "default".to_owned(),
        name: "web".to_owned(),
    };
    let state = PodState {
        r#ref: Some(pod),
        observed_at: Some(to_wire(at(told))),
        sandboxes: vec![Sandbox {
            id: "s1".to_owned(),
            ready: true,
            ..Default::default()
        }],
        ..Default::default()
    };
    Update::Upsert(uid.to_owned(), state)
}

fn wanted(uid: &str) -> Update<String, Pod> {
    wants(uid, "web", json!([]))
}

fn wants(uid: &str, name: &str, volumes: serde_json::Value) -> Update<String, Pod> {
    let manifest = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid},
        "spec": {"containers": [{"name": "a", "image": "a:1"}], "volumes": volumes}});
    let pod = Pod {
        r#ref: Some(PodRef {
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
        }),
        manifest: serde_json::to_vec(&manifest).unwrap().into(),
        ..Default::default()
    };
    Update::Upsert(uid.to_owned(), pod)
}

#[test]
fn an_orphan_that_comes_to_light_late_is_seen() {
    let (mut all, notes) = heard(Kept::default());
    sources_heard(&mut all);
    // Told a moment before it is heard, as everything is.
    all.take(Input::Pods(state("u1", 4)), at(5));
    all.work(at(5));
    let stop = Step::StopSandbox { id: "s1".into() };
    assert_eq!(*notes.steps.borrow(), [("u1".to_owned(), stop)]);
}

#[test]
fn a_removal_of_unknown_age_is_asked_about() {
    let (mut all, notes) = heard(Kept::default());
    all.take(Input::Pods(state("u1", 4)), at(5));
    all.take(Input::Pods(Update::Remove("u1".into())), at(6));
    assert_eq!(*notes.refreshed.borrow(), ["u1"]);
    let seen = all.workers["u1"].pod.observed.clone();
    assert!(!seen.expect("it was told of").is_empty());
}

#[test]
fn of_two_pods_of_one_name_the_second_waits_though_it_was_taken_up_before() {
    let entry = Journal {
        acknowledged_at: Some(at(-9)),
        ..Default::default()
    };
    let (mut all, notes) = heard(Kept {
        entries: BTreeMap::from([("u2".to_owned(), entry)]),
        ..Default::default()
    });
    let [one, two, _] = SOURCES.map(i32::from);
    all.take(Input::Config(one, wanted("u1")), at(1));
    all.work(at(1));
    all.take(Input::Config(two, wanted("u2")), at(2));
    all.work(at(2));
    assert!(notes.steps.borrow().iter().all(|(uid, _)| uid == "u1"));
}

#[test]
fn pods_of_the_cluster_do_not_wait_for_one_of_their_name() {
    let (mut all, notes) = heard(Kept::default());
    let api = i32::from(polylet_wire::podconfig::v1::PodSource::Api);
    for uid in ["u1", "u2"] {
        all.take(Input::Config(api, wanted(uid)), at(1));
    }
    sources_heard(&mut all);
    all.work(at(1));
    assert_eq!(all.blocked_by("u1"), None);
    assert_eq!(all.blocked_by("u2"), None);
    let [file, ..] = SOURCES.map(i32::from);
    all.take(Input::Config(file, wanted("u3")), at(2));
    assert_eq!(all.blocked_by("u3"), None, "nor does a static one for them");
    all.take(Input::Config(file, wanted("u4")), at(3));
    assert_eq!(all.blocked_by("u4").as_deref(), Some("u3"));
    drop(notes);
}

#[test]
fn who_came_first_is_looked_at_first() {
    let (mut all, _) = heard(Kept::default());
    let [file, ..] = SOURCES.map(i32::from);
    for (uid, name) in [("u3", "a"), ("u1", "b"), ("u2", "c")] {
        all.take(Input::Config(file, wants(uid, name, json!([]))), at(1));
    }
    all.seekers.insert("u3".to_owned());
    let order = |all: &mut Coordinator| -> Vec<String> {
        std::iter::from_fn(|| all.next_dirty()).collect()
    };
    assert_eq!(
        order(&mut all),
        ["u1", "u2", "u3"],
        "who waits for room is last"
    );
    all.seekers.clear();
    all.dirty.extend(["u1", "u2", "u3"].map(str::to_owned));
    assert_eq!(order(&mut all), ["u3", "u1", "u2"]);
}

#[test]
fn what_is_said_of_pods_that_nobody_knows_yet_is_kept() {
    use polylet_wire::prober::v1::{Outcome, ProbeKind, Verdict};
    use polylet_wire::volume::v1::PodVolumes;
    let (mut all, _) = heard(Kept::default());
    let mut verdict = Verdict::default();
    verdict.set_outcome(Outcome::Success);
    let key = ("u1".to_owned(), "c1".to_owned(), ProbeKind::Startup.into());
    all.take(Input::Verdict(Update::Upsert(key, verdict)), at(1));
    let volumes = PodVolumes {
        sequence: 7,
        ..Default::default()
    };
    all.take(Input::Volumes(Update::Upsert("u1".into(), volumes)), at(1));
    all.take(Input::Config(SOURCES[0].into(), wanted("u1")), at(2));
    let pod = &all.workers["u1"].pod;
    assert!(pod.startup_ok.contains("c1"));
    assert_eq!(
        pod.volumes.seen.as_ref().map(|(number, _)| *number),
        Some(7)
    );
}

#[test]
fn no_orphan_is_touched_before_every_source_was_heard() {
    let (mut all, notes) = heard(Kept::default());
    all.take(Input::Pods(state("u1", 0)), at(1));
    for source in SOURCES {
        all.work(at(1));
        assert!(notes.steps.borrow().is_empty(), "{source:?}");
        all.take(Input::Config(source.into(), Update::Synced), at(1));
    }
    all.work(at(1));
    assert_eq!(notes.steps.borrow().len(), 1);
}

#[test]
fn a_clock_that_is_set_back_makes_every_pod_be_looked_at() {
    let (mut all, _) = heard(Kept::default());
    all.take(Input::Config(SOURCES[0].into(), wanted("u1")), at(10));
    all.work(at(10));
    assert!(all.dirty.is_empty());
    all.take(Input::Timer, at(9));
    assert!(all.dirty.is_empty(), "two readings a moment apart");
    all.take(Input::Timer, at(-3600));
    assert!(all.dirty.contains("u1"));
}

#[test]
fn what_is_under_way_is_taken_up_again() {
    let mut lifecycle = Lifecycle::default();
    let due = crate::core::hooks::PostStart::Due;
    lifecycle.starts.insert("c1".into(), due);
    let (mut all, _) = heard(Kept {
        lifecycles: BTreeMap::from([("u1".to_owned(), lifecycle.clone())]),
        ..Default::default()
    });
    all.take(Input::Config(SOURCES[0].into(), wanted("u1")), at(1));
    assert_eq!(all.workers["u1"].lifecycle_kept, lifecycle);
}

#[test]
fn a_pod_that_the_cluster_holds_as_ended_never_begins() {
    use polylet_wire::podconfig::v1::TerminalPhase;
    let (mut all, notes) = heard(Kept::default());
    let Update::Upsert(uid, mut pod) = wanted("u1") else {
        return;
    };
    pod.set_terminal_phase(TerminalPhase::Succeeded);
    all.take(
        Input::Config(SOURCES[2].into(), Update::Upsert(uid, pod)),
        at(1),
    );
    sources_heard(&mut all);
    all.work(at(1));
    let steps = notes.steps.take().into_iter().map(|(_, step)| step);
    assert_eq!(
        steps.collect::<Vec<_>>(),
        [Step::Journal, Step::RemoveCgroup]
    );
    let told = all.workers["u1"].told().expect("it is judged");
    assert_eq!(told.terminal.expect("it has ended").phase, "Succeeded");
}

#[test]
fn nothing_is_taken_away_while_a_source_only_remembers() {
    let (mut all, notes) = heard(Kept::default());
    let Update::Upsert(uid, mut pod) = wants("u1", "other", json!([])) else {
        return;
    };
    pod.stale_since = Some(to_wire(at(-5)));
    all.take(
        Input::Config(SOURCES[2].into(), Update::Upsert(uid, pod)),
        at(1),
    );
    sources_heard(&mut all);
    all.take(Input::Pods(state("u2", 4)), at(5));
    all.work(at(5));
    let of_orphan = |notes: &Notes| notes.steps.borrow().iter().any(|(uid, _)| uid == "u2");
    assert!(!of_orphan(&notes));
    assert!(!notes.steps.borrow().is_empty(), "what is remembered runs");
    all.take(
        Input::Config(SOURCES[2].into(), wants("u1", "other", json!([]))),
        at(6),
    );
    all.work(at(6));
    assert!(of_orphan(&notes));
}

#[test]
fn what_a_step_lacked_brings_it_back_at_once() {
    use crate::core::learn::Trouble;
    let (mut all, notes) = heard(Kept::default());
    all.take(Input::Config(SOURCES[0].into(), wanted("u1")), at(1));
    all.work(at(1));
    let key = StepKey::Pull("a".into());
    let tries = || {
        notes
            .steps
            .borrow()
            .iter()
            .filter(|(_, s)| s.key() == key)
            .count()
    };
    let before = tries();
    let lacks = Trouble {
        lacking: Some(Box::default()),
        ..Trouble::default()
    };
    let ended = Input::StepDone {
        uid: "u1".into(),
        key: key.clone(),
        outcome: Box::new(Outcome::Failed(lacks)),
        state: None,
    };
    all.take(ended, at(2));
    all.work(at(30));
    assert_eq!(tries(), before);
    let (uid, key) = ("u1".to_owned(), key.clone());
    all.take(Input::Appeared { uid, key }, at(31));
    all.work(at(31));
    assert_eq!(tries(), before + 1);
}
