use proptest::prelude::*;

use super::files::{next_name, upkeep};
use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).unwrap()
}

fn rounds() -> Rounds<&'static str> {
    Rounds::new(SignedDuration::from_secs(10))
}

fn ids(turn: &[Look<&'static str>]) -> Vec<String> {
    turn.iter().map(|look| look.id.clone()).collect()
}

#[test]
fn needs() {
    let limits = Limits { size: 10, files: 5 };
    for (size, first, wanted) in [
        (None, true, Need::Reopen),
        (Some(9), true, Need::Tidy),
        (Some(9), false, Need::Nothing),
        (Some(10), false, Need::Rotate),
        (Some(10), true, Need::Rotate),
    ] {
        assert_eq!(need(limits, size, first), wanted, "{size:?} {first}");
    }
}

#[test]
fn a_log_that_is_still_sleeps_and_wakes() {
    let mut rounds = rounds();
    assert_eq!(rounds.due(), None);
    rounds.runs(
        "pod",
        vec![("a".into(), "a.log"), ("b".into(), "b.log")],
        at(0),
    );
    assert_eq!(rounds.due(), Some(at(10)));
    assert!(rounds.round(at(9)).is_empty());
    let turn = rounds.round(at(10));
    assert_eq!(ids(&turn), ["a", "b"]);
    assert!(turn.iter().all(|look| look.first));
    assert!(!rounds.unchanged("a", 5));
    assert!(!rounds.unchanged("b", 5));
    let turn = rounds.round(at(20));
    assert!(turn.iter().all(|look| !look.first));
    assert!(rounds.unchanged("a", 5));
    assert!(!rounds.unchanged("b", 6), "it was written to");
    assert_eq!(ids(&rounds.round(at(30))), ["b"]);
    assert!(rounds.unchanged("b", 6));
    // The round that was planned finds nothing, and then there are none.
    assert!(rounds.round(at(40)).is_empty());
    assert_eq!(rounds.due(), None);
    rounds.written("b", at(100));
    assert_eq!(rounds.due(), Some(at(110)));
    assert_eq!(ids(&rounds.round(at(110))), ["b"]);
}

#[test]
fn one_that_is_busy_is_left_alone_and_trouble_is_news_once() {
    let mut rounds = rounds();
    rounds.runs("pod", vec![("a".into(), "a.log")], at(0));
    rounds.round(at(10));
    rounds.busy("a");
    assert!(rounds.round(at(20)).is_empty());
    assert!(rounds.done("a", true, at(25)));
    assert_eq!(ids(&rounds.round(at(40))), ["a"]);
    rounds.busy("a");
    assert!(!rounds.done("a", true, at(41)), "told already");
    rounds.round(at(60));
    assert!(!rounds.unchanged("a", 1));
    rounds.busy("a");
    assert!(rounds.done("a", true, at(61)), "it was well in between");
}

#[test]
fn ended_containers_are_named_and_forgotten() {
    let mut rounds = rounds();
    rounds.runs("pod", vec![("a".into(), ""), ("b".into(), "")], at(0));
    rounds.runs("other", vec![("c".into(), "")], at(0));
    assert_eq!(rounds.runs("pod", vec![("b".into(), "")], at(1)), ["a"]);
    assert_eq!(rounds.runs("pod", Vec::new(), at(1)), ["b"]);
    assert!(!rounds.done("b", true, at(2)), "nobody asks any more");
    assert_eq!(ids(&rounds.round(at(10))), ["c"]);
    assert_eq!(rounds.runs("other", Vec::new(), at(11)), ["c"]);
    assert_eq!(rounds.due(), None);
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| format!("0.log{name}")).collect()
}

#[test]
fn upkeep_as_upstream() {
    let there = names(&[
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
    let done = upkeep("0.log", &there, 4);
    assert_eq!(
        done.remove,
        names(&[
            ".20260101-000002",
            ".20260101-000004.tmp",
            ".20260101-000001.gz",
            ".20260101-000002.gz",
        ])
    );
    assert_eq!(done.pack, names(&[".20260101-000003", ".20260101-000004"]));
    let newest_only = upkeep("0.log", &there, 2);
    assert!(newest_only.pack.is_empty());
    assert!(
        !newest_only
            .remove
            .contains(&"0.log.20260101-000005".to_owned())
    );
}

#[test]
fn names_rise_whatever_the_clock_says() {
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

proptest! {
    #[test]
    fn upkeep_is_done_once(there in any_names(), files in 2usize..7) {
        let done = upkeep("0.log", &there, files);
        let mut after: Vec<String> =
            there.iter().filter(|name| !done.remove.contains(name)).cloned().collect();
        for name in &done.pack {
            prop_assert!(!done.remove.contains(name));
            after.retain(|other| other != name);
            after.push(format!("{name}.gz"));
        }
        prop_assert_eq!(upkeep("0.log", &after, files), files::Upkeep::default());
        let rotated = after.iter().filter(|name| !name.ends_with(".x")).count();
        prop_assert!(rotated < files);
    }

    #[test]
    fn the_order_of_names_does_not_matter(there in any_names().prop_shuffle(), files in 2usize..7) {
        let mut sorted = there.clone();
        sorted.sort();
        prop_assert_eq!(upkeep("0.log", &there, files), upkeep("0.log", &sorted, files));
        prop_assert_eq!(next_name("0.log", &there, at(3)), next_name("0.log", &sorted, at(3)));
    }

    #[test]
    fn the_next_name_is_the_newest(there in any_names(), second in 0i64..20) {
        let next = next_name("0.log", &there, at(second));
        prop_assert!(there.iter().filter(|name| !name.ends_with(".x")).all(|name| *name < next));
    }
}
