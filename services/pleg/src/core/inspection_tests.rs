use proptest::prelude::*;

use super::*;
use crate::core::PodIdentity;

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn container(phase: ContainerPhase, created_at: i64) -> ListedContainer {
    ListedContainer {
        phase,
        sandbox_id: "s".to_owned(),
        name: "app".to_owned(),
        attempt: 0,
        created_at: Some(time(created_at)),
    }
}

fn listed(containers: &[(&str, ContainerPhase, i64)]) -> ListedPod {
    ListedPod {
        pod: PodIdentity {
            uid: "u".into(),
            ..Default::default()
        },
        containers: containers
            .iter()
            .map(|(id, phase, at)| ((*id).to_owned(), container(*phase, *at)))
            .collect(),
        ..Default::default()
    }
}

fn status(id: &str, phase: ContainerPhase, at: i64) -> ContainerStatus {
    ContainerStatus {
        image: "inspected".to_owned(),
        ..container_from_list(id, &container(phase, at))
    }
}

fn fresh(all: Vec<ContainerStatus>) -> FreshStatuses {
    FreshStatuses {
        containers: all.into_iter().map(|c| (c.id.clone(), Ok(c))).collect(),
        ..Default::default()
    }
}

const RUNNING: ContainerPhase = ContainerPhase::Running;
const EXITED: ContainerPhase = ContainerPhase::Exited;

#[test]
fn only_changed_entries_are_inspected() {
    let inspected = Inspected {
        listed: listed(&[("a", RUNNING, 1), ("b", EXITED, 2)]),
        fresh: fresh(vec![status("a", RUNNING, 1), status("b", EXITED, 2)]),
    };
    let merged = merge(None, inspected);
    let cached = cached_statuses(&merged, &OomChecks::new());
    let next = listed(&[("a", EXITED, 1), ("b", EXITED, 2), ("c", RUNNING, 3)]);
    assert_eq!(inspect_targets(&next, &cached).containers, ["a", "c"]);
}

#[test]
fn containers_of_one_name_are_sorted_newest_first() {
    let inspected = Inspected {
        listed: listed(&[("a", EXITED, 1), ("b", RUNNING, 3), ("c", EXITED, 2)]),
        fresh: FreshStatuses::default(),
    };
    let ids: Vec<_> = merge(None, inspected)
        .containers
        .into_iter()
        .map(|c| c.id)
        .collect();
    assert_eq!(ids, ["b", "c", "a"]);
}

#[test]
fn a_status_newer_than_the_list_wins() {
    let inspected = Inspected {
        listed: listed(&[("a", RUNNING, 1)]),
        fresh: fresh(vec![status("a", EXITED, 1)]),
    };
    let merged = merge(None, inspected);
    assert_eq!(merged.containers[0].phase, EXITED);
    assert!(listed(&[("a", EXITED, 1)]).matches(&merged));
}

#[test]
fn a_failed_status_call_keeps_the_previous_status_and_sets_the_error() {
    let first = Inspected {
        listed: listed(&[("a", RUNNING, 1)]),
        fresh: fresh(vec![status("a", RUNNING, 1)]),
    };
    let previous = merge(None, first);
    let mut fresh = FreshStatuses::default();
    fresh
        .containers
        .insert("a".to_owned(), Err("hangs".to_owned()));
    let second = Inspected {
        listed: listed(&[("a", EXITED, 1)]),
        fresh,
    };
    let merged = merge(Some(&previous), second);
    assert_eq!(merged.containers, previous.containers);
    assert_eq!(merged.inspect_error, "hangs");
    let cached = cached_statuses(&merged, &OomChecks::new());
    assert_eq!(cached, CachedStatuses::default());
}

#[test]
fn a_killed_container_is_final_once_it_was_inspected_after_the_delay() {
    let killed = ContainerStatus {
        exit_code: 137,
        reason: "Error".to_owned(),
        finished_at: Some(time(10)),
        ..status("a", EXITED, 1)
    };
    let with = |reason: &str, exit_code| ContainerStatus {
        reason: reason.to_owned(),
        exit_code,
        ..killed.clone()
    };
    let of = |fresh| Inspected {
        listed: listed(&[("a", EXITED, 1), ("b", RUNNING, 1)]),
        fresh,
    };
    let left = OomChecks::from([("a".to_owned(), time(12))]);
    let mut failed = FreshStatuses::default();
    failed
        .containers
        .insert("a".to_owned(), Err("hangs".to_owned()));
    let none = OomChecks::new();
    let cases = [
        ("too early", fresh(vec![killed.clone()]), 11, &none, &left),
        ("in time", fresh(vec![killed.clone()]), 12, &none, &none),
        ("again", fresh(vec![killed.clone()]), 12, &left, &none),
        ("failed", failed, 12, &left, &left),
        ("not requested", FreshStatuses::default(), 12, &left, &left),
        (
            "known",
            fresh(vec![with("OOMKilled", 137)]),
            11,
            &left,
            &none,
        ),
        (
            "by another signal",
            fresh(vec![with("Error", 143)]),
            11,
            &none,
            &none,
        ),
    ];
    for (case, fresh, at, before, after) in cases {
        let checks = oom_checks(before.clone(), &of(fresh), time(at));
        assert_eq!(&checks, after, "{case}");
    }
    let gone = oom_checks(left.clone(), &Inspected::default(), time(11));
    assert_eq!(gone, none);

    let pod = PodStatus {
        containers: vec![killed],
        ..Default::default()
    };
    let targets = |checks| {
        let cached = cached_statuses(&pod, checks);
        inspect_targets(&listed(&[("a", EXITED, 1)]), &cached).containers
    };
    assert_eq!(targets(&left), ["a"]);
    assert!(targets(&none).is_empty());
}

#[test]
fn a_ready_sandbox_without_an_address_is_inspected_again() {
    let sandbox = SandboxStatus {
        id: "s".to_owned(),
        ready: true,
        ..Default::default()
    };
    let listed = ListedPod {
        sandboxes: [(
            "s".to_owned(),
            ListedSandbox {
                ready: true,
                attempt: 0,
                created_at: None,
            },
        )]
        .into(),
        ..Default::default()
    };
    let targets = |sandbox: SandboxStatus| {
        let pod = PodStatus {
            sandboxes: vec![sandbox],
            ..Default::default()
        };
        let cached = cached_statuses(&pod, &OomChecks::new());
        inspect_targets(&listed, &cached).sandboxes
    };
    let on_host_network = SandboxStatus {
        host_network: true,
        ..sandbox.clone()
    };
    assert_eq!(targets(sandbox), ["s"]);
    assert!(targets(on_host_network).is_empty());
}

proptest! {
    #[test]
    fn a_merged_status_matches_its_list(
        containers in prop::collection::btree_map("[a-f]", (0usize..4, 0i64..9), 0..6),
    ) {
        let phases = [ContainerPhase::Created, RUNNING, EXITED, ContainerPhase::Unknown];
        let entries: Vec<_> = containers
            .iter()
            .map(|(id, (phase, at))| (id.as_str(), phases[*phase], *at))
            .collect();
        let listed = listed(&entries);
        let inspected = Inspected { listed: listed.clone(), fresh: FreshStatuses::default() };
        let merged = merge(None, inspected.clone());
        prop_assert!(listed.matches(&merged));
        let cached = cached_statuses(&merged, &OomChecks::new());
        prop_assert_eq!(inspect_targets(&listed, &cached), InspectTargets::default());
        // Another inspection of the same entries changes nothing.
        prop_assert_eq!(&merged, &merge(Some(&merged), inspected));
    }
}
