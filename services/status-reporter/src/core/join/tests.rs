use jiff::Timestamp;
use polylet_model::Manifest;
use polylet_model::status::{Container, Note, Sandbox, Terminal, is_ready};
use serde_json::json;

use super::*;

mod orders;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn manifest() -> Manifest {
    let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": [{"name": "a", "image": "x", "readinessProbe": {"exec": {}}}]}});
    Manifest::from_json(pod.to_string().as_bytes()).unwrap()
}

fn wanted() -> Option<Wanted> {
    Some(Wanted {
        manifest: manifest(),
        stale: false,
    })
}

fn progress(stage: Stage) -> Progress {
    Progress {
        stage,
        acknowledged_at: Some(at(0)),
        ..Progress::default()
    }
}

fn held(phase: ContainerPhase) -> Option<Held> {
    let container = Container {
        id: "c".into(),
        sandbox_id: "s".into(),
        name: "a".into(),
        attempt: 0,
        image: "x".into(),
        image_id: "i".into(),
        phase,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        created_at: Some(at(2)),
        started_at: Some(at(3)),
        actual: None,
        user: None,
        finished_at: (phase == ContainerPhase::Exited).then(|| at(90)),
    };
    let sandbox = Sandbox {
        id: "s".into(),
        attempt: 0,
        ready: true,
        ips: vec!["10.0.0.1".into()],
        created_at: Some(at(1)),
        host_network: false,
        runtime_handler: String::new(),
    };
    Some(Held {
        sandboxes: vec![sandbox],
        containers: vec![container],
        inspect_error: String::new(),
    })
}

fn verdict(success: bool, since: i64) -> Option<Verdict> {
    Some(Verdict {
        container_id: "c".into(),
        kind: ProbeKind::Readiness,
        success,
        since: Some(at(since)),
    })
}

/// One fact of a pod that has become ready, by number.
fn fact(join: &mut Join, number: usize) {
    match number {
        0 => join.pod(Source::File, "u".into(), wanted()),
        1 => join.progress("u".into(), Some(progress(Stage::Syncing))),
        2 => join.held("u".into(), held(ContainerPhase::Running)),
        _ => join.verdict(
            "u".into(),
            "c".into(),
            ProbeKind::Readiness,
            verdict(true, 9),
        ),
    }
}

fn hear(join: &mut Join) {
    Stream::ALL
        .into_iter()
        .for_each(|stream| join.synced(stream));
}

fn ready_with(kept: BTreeMap<String, Arc<PodStatus>>) -> Join {
    let mut join = Join::new(kept);
    (0..4).for_each(|number| fact(&mut join, number));
    hear(&mut join);
    join
}

fn ready() -> Join {
    let mut join = ready_with(BTreeMap::new());
    assert!(is_ready(&tell(&mut join).unwrap().status));
    join
}

/// Joins all that is dirty; what was told of the pod by that.
fn tell(join: &mut Join) -> Option<Told> {
    let mut last = None;
    for uid in join.take_dirty() {
        if let Outcome::Told { told, .. } = join.join(&uid) {
            last = Some(*told);
        }
    }
    last
}

#[test]
fn nothing_is_said_before_everything_needed_is_heard() {
    let needed = Stream::ALL
        .into_iter()
        .filter(|s| !matches!(s, Stream::Pods(Source::Http | Source::Api)));
    for missing in needed {
        let mut join = Join::new(BTreeMap::new());
        (0..4).for_each(|number| fact(&mut join, number));
        Stream::ALL
            .into_iter()
            .filter(|stream| *stream != missing)
            .for_each(|stream| join.synced(stream));
        assert_eq!(tell(&mut join), None, "{missing:?}");
        assert!(!join.is_whole());
        assert_eq!(join.missing(), [missing.what()]);
        join.synced(missing);
        assert!(is_ready(&tell(&mut join).unwrap().status), "{missing:?}");
        assert!(join.is_whole() && join.missing().is_empty());
    }
}

#[test]
fn file_pods_do_not_wait_for_the_api() {
    let mut join = Join::new(BTreeMap::new());
    (0..4).for_each(|number| fact(&mut join, number));
    join.pod(Source::Api, "v".into(), wanted());
    let heard = Stream::ALL
        .into_iter()
        .filter(|stream| *stream != Stream::Pods(Source::Api));
    heard.for_each(|stream| join.synced(stream));
    let dirty = join.take_dirty();
    assert_eq!(dirty.len(), 2);
    assert!(matches!(join.join("u"), Outcome::Told { .. }));
    assert_eq!(join.join("v"), Outcome::Same);
    assert!(!join.is_whole());
    join.synced(Stream::Pods(Source::Api));
    assert!(join.take_dirty().contains("v"));
    assert!(matches!(join.join("v"), Outcome::Told { .. }));
}

#[test]
fn a_pod_is_gone_when_nobody_wants_it_and_nothing_is_left() {
    for (wants, reclaimed, holds, gone) in [
        (false, Some(true), false, true),
        (false, None, false, true),
        (true, Some(true), false, false),
        (false, Some(false), false, false),
        (false, None, true, false),
        (false, Some(true), true, false),
    ] {
        let mut join = ready();
        join.pod(
            Source::File,
            "u".into(),
            if wants { wanted() } else { None },
        );
        let progress = reclaimed.map(|reclaimed| Progress {
            reclaimed,
            ..progress(Stage::Terminated)
        });
        join.progress("u".into(), progress);
        join.held(
            "u".into(),
            if holds {
                held(ContainerPhase::Exited)
            } else {
                None
            },
        );
        join.take_dirty();
        assert_eq!(
            join.join("u") == Outcome::Gone,
            gone,
            "{wants} {reclaimed:?} {holds}"
        );
        assert_eq!(join.statuses().is_empty(), gone);
    }
}

#[test]
fn a_leaving_pod_is_told_from_its_last_manifest() {
    let told = ready().statuses();
    let mut join = Join::new(told);
    let leaving = Progress {
        last_manifest: Some(manifest()),
        ..progress(Stage::Terminating)
    };
    join.progress("u".into(), Some(leaving));
    join.held("u".into(), held(ContainerPhase::Exited));
    hear(&mut join);
    let told = tell(&mut join).unwrap();
    assert_eq!(told.status.phase.as_deref(), Some("Succeeded"));
    // Without one there is nothing to say of what only the runtime holds.
    let mut orphan = Join::new(BTreeMap::new());
    orphan.held("u".into(), held(ContainerPhase::Running));
    hear(&mut orphan);
    assert_eq!(tell(&mut orphan), None);
}

#[test]
fn a_peer_that_is_away_is_named_and_changes_nothing_else() {
    for stream in Stream::ALL {
        let mut join = ready();
        let before = join.statuses();
        join.stale(stream);
        let concerned = !matches!(stream, Stream::Pods(Source::Http | Source::Api));
        let told = tell(&mut join);
        assert_eq!(
            told.map(|told| told.stale),
            concerned.then(|| vec![stream.peer().to_owned()]),
            "{stream:?}"
        );
        assert_eq!(join.statuses(), before);
        join.synced(stream);
        assert_eq!(
            tell(&mut join).map(|told| told.stale),
            concerned.then(Vec::new)
        );
        assert_eq!(join.statuses(), before);
    }
}

#[test]
fn other_words_on_staleness() {
    // Nobody looks for the fault in pod-config when it is the server that is away.
    for (source, who) in [(Source::File, "pod-config"), (Source::Api, "API server")] {
        let mut join = ready();
        join.pod(Source::File, "u".into(), None);
        let (manifest, stale) = (manifest(), true);
        join.pod(source, "u".into(), Some(Wanted { manifest, stale }));
        let unseen = held(ContainerPhase::Running).map(|held| Held {
            inspect_error: "timed out".into(),
            ..held
        });
        join.held("u".into(), unseen);
        let told = tell(&mut join).unwrap().stale;
        assert_eq!(told, [who, "container runtime: timed out"]);
    }
}

#[test]
fn the_next_life_says_the_same() {
    let first = ready().statuses();
    for kept in [first.clone(), BTreeMap::new()] {
        let known = !kept.is_empty();
        let mut join = ready_with(kept);
        join.take_dirty();
        let Outcome::Told { told, changed } = join.join("u") else {
            panic!("nothing told")
        };
        assert_eq!((Some(&told.status), changed), (first.get("u"), !known));
    }
    // What is kept of others stays kept until all has been heard.
    let mut join = ready_with(BTreeMap::from([("gone".to_owned(), Arc::default())]));
    tell(&mut join);
    assert!(join.statuses().contains_key("gone"));
    assert!(join.forget_kept());
    assert!(!join.statuses().contains_key("gone") && !join.forget_kept());
}

#[test]
fn ends_that_are_on_their_way_are_not_unknown() {
    let mut join = ready();
    join.progress("u".into(), Some(progress(Stage::Terminated)));
    assert_eq!(tell(&mut join), None);
    join.held("u".into(), held(ContainerPhase::Exited));
    let late = tell(&mut join).unwrap();
    let state = late.status.container_statuses.as_ref().unwrap()[0]
        .state
        .clone()
        .unwrap();
    assert_eq!(state.terminated.unwrap().exit_code, 0);
    assert_eq!(late.status.phase.as_deref(), Some("Succeeded"));
}

#[test]
fn a_pod_that_comes_back_starts_over() {
    let mut join = ready();
    let terminal = Terminal {
        phase: "Failed".into(),
        reason: "Evicted".into(),
        message: String::new(),
        decided_at: Some(at(50)),
        disruption_target: true,
    };
    join.progress(
        "u".into(),
        Some(Progress {
            terminal: Some(terminal),
            ..progress(Stage::Terminated)
        }),
    );
    join.held("u".into(), None);
    assert_eq!(
        tell(&mut join).unwrap().status.phase.as_deref(),
        Some("Failed")
    );
    join.progress(
        "u".into(),
        Some(Progress {
            acknowledged_at: Some(at(200)),
            ..Progress::default()
        }),
    );
    let again = tell(&mut join).unwrap().status;
    assert_eq!(
        (again.phase.as_deref(), again.reason.as_deref()),
        (Some("Pending"), None)
    );
}

#[test]
fn notes_and_what_is_waited_for_are_told() {
    let mut join = ready();
    let note = Note {
        container: "a".into(),
        reason: "ErrImagePull".into(),
        message: "no".into(),
        restarts: 0,
    };
    let waiting = Progress {
        notes: vec![note],
        waiting_for: vec!["image x".into()],
        ..progress(Stage::Syncing)
    };
    join.progress("u".into(), Some(waiting));
    let told = tell(&mut join).unwrap();
    assert_eq!(told.waiting_for, ["image x"]);
    assert!(
        is_ready(&told.status),
        "a container that runs does not wait"
    );
}

#[test]
fn only_pods_whose_facts_changed_are_joined() {
    let mut join = ready();
    join.pod(Source::File, "v".into(), wanted());
    assert_eq!(join.take_dirty(), BTreeSet::from(["v".to_owned()]));
    assert!(join.take_dirty().is_empty());
    fact(&mut join, 1);
    tell(&mut join);
    fact(&mut join, 1);
    assert_eq!(tell(&mut join), None, "the same again is nothing new");
}

#[test]
fn nothing_of_a_pod_that_is_gone_is_ready_whatever_was_heard_last() {
    let mut join = ready();
    join.held("u".into(), held(ContainerPhase::Exited));
    for reclaimed in [false, true] {
        let progress = Progress {
            reclaimed,
            ..progress(Stage::Terminated)
        };
        join.progress("u".into(), Some(progress));
        let status = tell(&mut join).unwrap().status;
        let mut conditions = status.conditions.iter().flatten();
        let has = conditions.find(|of| of.type_ == "PodReadyToStartContainers");
        assert_eq!(has.unwrap().status == "True", !reclaimed);
    }
}
