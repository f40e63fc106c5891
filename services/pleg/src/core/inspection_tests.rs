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
    let cached = cached_statuses(&merged, Timestamp::UNIX_EPOCH);
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
    let cached = cached_statuses(&merged, Timestamp::UNIX_EPOCH);
    assert_eq!(cached, CachedStatuses::default());
}

#[test]
fn a_killed_container_is_inspected_again_for_its_oom_reason() {
    let mut killed = status("a", EXITED, 1);
    killed.exit_code = 137;
    killed.reason = "Error".to_owned();
    killed.finished_at = Some(time(10));
    let pod = PodStatus {
        containers: vec![killed],
        ..Default::default()
    };
    assert_eq!(reinspect_at(&pod, time(10)), Some(time(12)));
    assert_eq!(reinspect_at(&pod, time(12)), None);
    let targets = |now| {
        let cached = cached_statuses(&pod, time(now));
        inspect_targets(&listed(&[("a", EXITED, 1)]), &cached).containers
    };
    assert_eq!(targets(11), ["a"]);
    assert!(targets(12).is_empty());
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
        let cached = cached_statuses(&pod, Timestamp::UNIX_EPOCH);
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
        let cached = cached_statuses(&merged, Timestamp::UNIX_EPOCH);
        prop_assert_eq!(inspect_targets(&listed, &cached), InspectTargets::default());
        // Another inspection of the same entries changes nothing.
        prop_assert_eq!(&merged, &merge(Some(&merged), inspected));
    }
}
