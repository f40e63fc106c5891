use proptest::prelude::*;

use super::*;
use crate::core::log_rotation::files::{clean_up, next_name};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).unwrap()
}

fn schedule() -> RotationSchedule<&'static str> {
    RotationSchedule::new(SignedDuration::from_secs(10))
}

fn ids(requests: &[StatRequest<&'static str>]) -> Vec<String> {
    requests.iter().map(|request| request.id.clone()).collect()
}

#[test]
fn need_depends_on_size_and_first_check() {
    let limits = LogLimits {
        max_size: 10,
        max_files: 5,
    };
    for (size, first, expected) in [
        (None, true, RotationNeed::Reopen),
        (Some(9), true, RotationNeed::CleanUp),
        (Some(9), false, RotationNeed::None),
        (Some(10), false, RotationNeed::Rotate),
        (Some(10), true, RotationNeed::Rotate),
    ] {
        assert_eq!(
            rotation_need(limits, size, first),
            expected,
            "{size:?} {first}"
        );
    }
}

#[test]
fn an_idle_log_is_watched_until_the_next_write() {
    let mut schedule = schedule();
    assert_eq!(schedule.due(), None);
    schedule.set_running(
        "pod",
        vec![("a".into(), "a.log"), ("b".into(), "b.log")],
        at(0),
    );
    assert_eq!(schedule.due(), Some(at(10)));
    assert!(schedule.poll(at(9)).is_empty());
    let requests = schedule.poll(at(10));
    assert_eq!(ids(&requests), ["a", "b"]);
    assert!(requests.iter().all(|request| request.is_first));
    assert!(!schedule.on_unchanged("a", 5));
    assert!(!schedule.on_unchanged("b", 5));
    let requests = schedule.poll(at(20));
    assert!(requests.iter().all(|request| !request.is_first));
    assert!(schedule.on_unchanged("a", 5));
    assert!(
        !schedule.on_unchanged("b", 6),
        "written since the last poll"
    );
    assert_eq!(ids(&schedule.poll(at(30))), ["b"]);
    assert!(schedule.on_unchanged("b", 6));
    // The scheduled poll finds nothing, and no further one is scheduled.
    assert!(schedule.poll(at(40)).is_empty());
    assert_eq!(schedule.due(), None);
    schedule.on_written("b", at(100));
    assert_eq!(schedule.due(), Some(at(110)));
    assert_eq!(ids(&schedule.poll(at(110))), ["b"]);
}

#[test]
fn busy_logs_are_skipped_and_only_the_first_failure_is_reported() {
    let mut schedule = schedule();
    schedule.set_running("pod", vec![("a".into(), "a.log")], at(0));
    schedule.poll(at(10));
    schedule.set_busy("a");
    assert!(schedule.poll(at(20)).is_empty());
    assert!(schedule.on_done("a", true, at(25)));
    assert_eq!(ids(&schedule.poll(at(40))), ["a"]);
    schedule.set_busy("a");
    assert!(!schedule.on_done("a", true, at(41)), "reported already");
    schedule.poll(at(60));
    assert!(!schedule.on_unchanged("a", 1));
    schedule.set_busy("a");
    assert!(schedule.on_done("a", true, at(61)), "succeeded in between");
}

#[test]
fn exited_containers_are_returned_and_dropped() {
    let mut schedule = schedule();
    schedule.set_running("pod", vec![("a".into(), ""), ("b".into(), "")], at(0));
    schedule.set_running("other", vec![("c".into(), "")], at(0));
    assert_eq!(
        schedule.set_running("pod", vec![("b".into(), "")], at(1)),
        ["a"]
    );
    assert_eq!(schedule.set_running("pod", Vec::new(), at(1)), ["b"]);
    assert!(!schedule.on_done("b", true, at(2)), "dropped already");
    assert_eq!(ids(&schedule.poll(at(10))), ["c"]);
    assert_eq!(schedule.set_running("other", Vec::new(), at(11)), ["c"]);
    assert_eq!(schedule.due(), None);
}

#[test]
fn all_logs_that_are_not_busy_are_polled_after_writes_were_missed() {
    let mut schedule = schedule();
    let logs = ["a", "b", "c"].map(|id| (id.to_owned(), ""));
    schedule.set_running("pod", logs.into(), at(0));
    schedule.poll(at(10));
    for id in ["a", "b"] {
        assert!(!schedule.on_unchanged(id, 5));
        assert!(schedule.on_unchanged(id, 5));
    }
    schedule.set_busy("c");
    assert!(schedule.poll(at(20)).is_empty());
    schedule.poll_all(at(21));
    assert_eq!(ids(&schedule.poll(at(30))), ["a", "b"]);
    // A log that was busy does not keep the schedule awake.
    schedule.set_running("pod", Vec::new(), at(31));
    assert_eq!(schedule.due(), None);
    assert!(!schedule.on_done("c", true, at(32)));
    assert_eq!(schedule.due(), None);
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| format!("0.log{name}")).collect()
}

#[test]
fn clean_up_follows_upstream() {
    let existing = names(&[
        "",
        ".20260101-000001.gz",
        ".20260101-000002.gz",
        ".20260101-000002",
        ".20260101-000003",
        ".20260101-000004.tmp",
        ".20260101-000004",
        ".20260101-000005",
        ".other",
    ]);
    let done = clean_up("0.log", &existing, 4);
    assert_eq!(
        done.remove,
        names(&[
            ".20260101-000002",
            ".20260101-000004.tmp",
            ".20260101-000001.gz",
            ".20260101-000002.gz",
        ])
    );
    assert_eq!(
        done.compress,
        names(&[".20260101-000003", ".20260101-000004"])
    );
    let newest_only = clean_up("0.log", &existing, 2);
    assert!(newest_only.compress.is_empty());
    assert!(
        !newest_only
            .remove
            .contains(&"0.log.20260101-000005".to_owned())
    );
}

#[test]
fn next_name_is_later_than_all_existing_ones() {
    let now = at(5);
    assert_eq!(next_name("0.log", &[], now), "0.log.20260101-000005");
    let same = names(&[".20260101-000005"]);
    assert_eq!(next_name("0.log", &same, now), "0.log.20260101-000006");
    let ahead = names(&[".20260101-235959.gz", ".20260101-000001"]);
    assert_eq!(next_name("0.log", &ahead, now), "0.log.20260102-000000");
    let no_time = names(&[".99999999-999999"]);
    assert_eq!(next_name("0.log", &no_time, now), "0.log.20260101-000005");
}

fn any_names() -> impl Strategy<Value = Vec<String>> {
    let one = (
        0u32..12,
        prop_oneof![Just(""), Just(".gz"), Just(".tmp"), Just(".x")],
    )
        .prop_map(|(second, ending)| format!("0.log.20260101-0000{second:02}{ending}"));
    prop::collection::btree_set(one, 0..20).prop_map(|all| all.into_iter().collect())
}

/// Something that happens to one of four logs of two pods.
fn apply_change(
    schedule: &mut RotationSchedule<&'static str>,
    change: u8,
    which: u8,
    now: Timestamp,
) {
    let id = which.to_string();
    match change {
        0 => schedule.on_written(&id, now),
        1 => drop(schedule.on_unchanged(&id, 5)),
        2 => schedule.set_busy(&id),
        3 => drop(schedule.on_done(&id, false, now)),
        4 => schedule.poll_all(now),
        5 => drop(schedule.poll(now)),
        _ => {
            // Each number is a set of the pod's two logs.
            let (uid, first) = if which < 2 { ("p", 0) } else { ("q", 2) };
            let runs = |log: &u8| change & (1 << log) != 0;
            let logs = (0..2)
                .filter(runs)
                .map(|log| ((first + log).to_string(), ""));
            drop(schedule.set_running(uid, logs.collect(), now));
        }
    }
}

#[test]
fn late_answers_change_neither_watched_nor_busy_logs() {
    let mut schedule = schedule();
    schedule.set_running("u1", vec![("a".to_owned(), "a.log")], at(0));
    assert!(!schedule.on_unchanged("a", 1) && schedule.on_unchanged("a", 1));
    assert!(!schedule.on_unchanged("a", 1));
    assert_eq!(schedule.logs["a"].state, State::Watched);
    schedule.set_busy("a");
    assert!(!schedule.on_unchanged("a", 1));
    assert_eq!(schedule.logs["a"].state, State::Busy);
}

proptest! {
    #[test]
    fn indexes_follow_the_logs(changes in prop::collection::vec((0u8..16, 0u8..4), 0..40)) {
        let mut schedule = schedule();
        for (second, (change, which)) in (0..).zip(changes) {
            apply_change(&mut schedule, change, which, at(second * 7));
            let unwatched = schedule.logs.iter().filter(|(_, log)| log.state != State::Watched);
            prop_assert!(unwatched.map(|(id, _)| id).eq(&schedule.unwatched));
            let mut of_pods: Vec<&String> = schedule.ids_by_pod.values().flatten().collect();
            of_pods.sort();
            prop_assert!(of_pods.into_iter().eq(schedule.logs.keys()));
            prop_assert!(schedule.ids_by_pod.values().all(|ids| !ids.is_empty()));
            // The end of the work on a busy log has it polled.
            let is_polled = |log: &TrackedLog<_>| matches!(log.state, State::Polled(_));
            prop_assert!(schedule.due().is_some() || !schedule.logs.values().any(is_polled));
        }
    }

    #[test]
    fn clean_up_is_idempotent(existing in any_names(), files in 2usize..7) {
        let done = clean_up("0.log", &existing, files);
        let mut after: Vec<String> =
            existing.iter().filter(|name| !done.remove.contains(name)).cloned().collect();
        for name in &done.compress {
            prop_assert!(!done.remove.contains(name));
            after.retain(|other| other != name);
            after.push(format!("{name}.gz"));
        }
        prop_assert_eq!(clean_up("0.log", &after, files), files::RotationCleanup::default());
        let rotated = after.iter().filter(|name| !name.ends_with(".x")).count();
        prop_assert!(rotated < files);
    }

    #[test]
    fn the_order_of_names_does_not_matter(existing in any_names().prop_shuffle(), files in 2usize..7) {
        let mut sorted = existing.clone();
        sorted.sort();
        prop_assert_eq!(clean_up("0.log", &existing, files), clean_up("0.log", &sorted, files));
        prop_assert_eq!(next_name("0.log", &existing, at(3)), next_name("0.log", &sorted, at(3)));
    }

    #[test]
    fn the_next_name_sorts_last(existing in any_names(), second in 0i64..20) {
        let next = next_name("0.log", &existing, at(second));
        prop_assert!(existing.iter().filter(|name| !name.ends_with(".x")).all(|name| *name < next));
    }
}
