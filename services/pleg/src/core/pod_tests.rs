use polylet_wire::common::v1::PodRef;
use proptest::prelude::*;

use super::*;

fn listed(phase: ContainerPhase, created_at: i64) -> ContainerView {
    ContainerView {
        phase,
        sandbox_id: "s".to_owned(),
        name: "app".to_owned(),
        attempt: 0,
        created_at,
    }
}

fn view(containers: &[(&str, ContainerPhase, i64)]) -> PodView {
    PodView {
        pod: PodRef {
            uid: "u".to_owned(),
            ..Default::default()
        },
        containers: containers
            .iter()
            .map(|(id, phase, at)| ((*id).to_owned(), listed(*phase, *at)))
            .collect(),
        ..Default::default()
    }
}

fn told(id: &str, phase: ContainerPhase, at: i64) -> Container {
    Container {
        image: "told".to_owned(),
        ..bare_container(id, &listed(phase, at))
    }
}

fn answers(all: Vec<Container>) -> Fresh {
    Fresh {
        containers: all.into_iter().map(|c| (c.id.clone(), Ok(c))).collect(),
        ..Default::default()
    }
}

const RUNNING: ContainerPhase = ContainerPhase::Running;
const EXITED: ContainerPhase = ContainerPhase::Exited;

#[test]
fn only_what_changed_is_asked_about() {
    let seen = Seen {
        view: view(&[("a", RUNNING, 1), ("b", EXITED, 2)]),
        fresh: answers(vec![told("a", RUNNING, 1), told("b", EXITED, 2)]),
    };
    let state = merge(None, seen);
    let known = known(&state, Timestamp::UNIX_EPOCH);
    let now = view(&[("a", EXITED, 1), ("b", EXITED, 2), ("c", RUNNING, 3)]);
    assert_eq!(missing(&now, &known).containers, ["a", "c"]);
}

#[test]
fn newest_first_within_a_name() {
    let seen = Seen {
        view: view(&[("a", EXITED, 1), ("b", RUNNING, 3), ("c", EXITED, 2)]),
        fresh: Fresh::default(),
    };
    let ids: Vec<_> = merge(None, seen)
        .containers
        .into_iter()
        .map(|c| c.id)
        .collect();
    assert_eq!(ids, ["b", "c", "a"]);
}

#[test]
fn a_status_newer_than_the_list_counts() {
    let seen = Seen {
        view: view(&[("a", RUNNING, 1)]),
        fresh: answers(vec![told("a", EXITED, 1)]),
    };
    let state = merge(None, seen);
    assert_eq!(state.containers[0].phase(), EXITED);
    assert!(view(&[("a", EXITED, 1)]).agrees_with(&state));
}

#[test]
fn a_failed_answer_keeps_the_last_known_and_says_so() {
    let first = Seen {
        view: view(&[("a", RUNNING, 1)]),
        fresh: answers(vec![told("a", RUNNING, 1)]),
    };
    let before = merge(None, first);
    let mut fresh = Fresh::default();
    fresh
        .containers
        .insert("a".to_owned(), Err("hangs".to_owned()));
    let second = Seen {
        view: view(&[("a", EXITED, 1)]),
        fresh,
    };
    let state = merge(Some(&before), second);
    assert_eq!(state.containers, before.containers);
    assert_eq!(state.inspect_error, "hangs");
    // Nothing is taken for known after that.
    assert_eq!(known(&state, Timestamp::UNIX_EPOCH), Known::default());
}

#[test]
fn a_killed_container_is_asked_about_once_more() {
    let mut killed = told("a", EXITED, 1);
    killed.exit_code = 137;
    killed.reason = "Error".to_owned();
    killed.finished_at = Some(time::to_wire(Timestamp::from_second(10).unwrap()));
    let state = PodState {
        containers: vec![killed],
        ..Default::default()
    };
    let at = |s| Timestamp::from_second(s).unwrap();
    assert_eq!(look_again_at(&state, at(10)), Some(at(12)));
    assert_eq!(look_again_at(&state, at(12)), None);
    assert_eq!(
        missing(&view(&[("a", EXITED, 1)]), &known(&state, at(11))).containers,
        ["a"]
    );
    assert!(
        missing(&view(&[("a", EXITED, 1)]), &known(&state, at(12)))
            .containers
            .is_empty()
    );
}

#[test]
fn a_ready_sandbox_without_address_is_asked_about_again() {
    let sandbox = Sandbox {
        id: "s".to_owned(),
        ready: true,
        ..Default::default()
    };
    let state = PodState {
        sandboxes: vec![sandbox.clone()],
        ..Default::default()
    };
    let listed = SandboxView {
        ready: true,
        attempt: 0,
        created_at: 0,
    };
    let view = PodView {
        sandboxes: [("s".to_owned(), listed)].into(),
        ..Default::default()
    };
    let now = Timestamp::UNIX_EPOCH;
    assert_eq!(missing(&view, &known(&state, now)).sandboxes, ["s"]);
    let host = Sandbox {
        host_network: true,
        ..sandbox
    };
    let state = PodState {
        sandboxes: vec![host],
        ..Default::default()
    };
    assert!(missing(&view, &known(&state, now)).sandboxes.is_empty());
}

proptest! {
    #[test]
    fn a_state_made_of_a_view_agrees_with_it(
        containers in prop::collection::btree_map("[a-f]", (1i32..5, 0i64..9), 0..6),
    ) {
        let listed: Vec<_> = containers
            .iter()
            .map(|(id, (phase, at))| (id.as_str(), ContainerPhase::try_from(*phase).unwrap(), *at))
            .collect();
        let view = view(&listed);
        let seen = Seen { view: view.clone(), fresh: Fresh::default() };
        let state = merge(None, seen.clone());
        prop_assert!(view.agrees_with(&state));
        prop_assert_eq!(missing(&view, &known(&state, Timestamp::UNIX_EPOCH)), Missing::default());
        // Another look at the same changes nothing.
        prop_assert!(same(&state, &merge(Some(&state), seen)));
    }
}
