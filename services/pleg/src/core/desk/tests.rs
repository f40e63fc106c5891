use proptest::prelude::*;

use super::*;
use play::*;

mod ended;
mod play;

#[test]
fn whole_after_every_pod_of_the_first_list_was_looked_at() {
    let world = world(&[("p", "a", 2), ("q", "b", 3)]);
    let mut play = Play::new();
    play.end(0, &world);
    assert_eq!(looks(&play), ["p", "q"]);
    play.end(0, &world);
    assert!(!play.whole);
    play.end(0, &world);
    assert!(play.whole);
    assert_eq!(play.tells(), world);
    let mut empty = Play::new();
    empty.settle(&World::new());
    assert!(empty.whole, "nothing runs, and that is known");
}

#[test]
fn not_whole_while_a_refresh_of_a_listed_pod_is_under_way() {
    let world = world(&[("p", "a", 2)]);
    let mut play = Play::new();
    play.desk.refresh("p", false, 1);
    play.pump();
    play.end(0, &world);
    assert!(!play.whole);
    play.settle(&world);
    assert!(play.whole);
    assert_eq!(play.tells(), world);
}

#[test]
fn a_runtime_that_is_away_at_first_is_asked_again() {
    let world = world(&[("p", "a", 2)]);
    let mut play = Play::new();
    play.fail(0);
    assert!(!play.whole);
    play.now = 1000;
    play.pump();
    play.end(0, &world);
    play.fail(0);
    assert!(!play.whole, "listed, but not looked at");
    play.pass(2000, &world);
    assert!(play.whole);
}

#[test]
fn a_refresh_asks_anew_where_it_is_told_to() {
    let world = world(&[("p", "a", 2)]);
    let mut play = Play::new();
    play.settle(&world);
    for (token, anew) in [(1, false), (2, true), (3, false)] {
        play.desk.refresh("p", anew, token);
        play.pump();
        let asks = play
            .asked
            .iter()
            .any(|step| matches!(step, Step::Look { known, .. } if *known == Known::default()));
        assert_eq!(asks, anew, "{token}");
        play.settle(&world);
    }
}

#[test]
fn at_rest_only_lists() {
    let world = world(&[("p", "a", 2)]);
    let mut play = Play::new();
    play.settle(&world);
    play.desk.events(true, at(0));
    play.pass(6000, &world);
    for _ in 0..3 {
        let due = play.desk.due().unwrap().as_millisecond();
        assert!(due >= play.now + 20_000, "{due} {}", play.now);
        play.now = due;
        play.pump();
        assert!(looks(&play).is_empty());
        play.settle(&world);
    }
}

#[test]
fn an_end_is_looked_at_at_once_and_a_beginning_waits_for_its_refresh() {
    let mut now = world(&[("p", "a", 2)]);
    let mut play = Play::new();
    play.settle(&now);
    play.now = 500;
    play.desk.hint(hint("", "a", HintKind::Ended, 500), at(500));
    play.pump();
    assert_eq!(looks(&play), ["p"]);
    now.get_mut("p").unwrap().1 = 3;
    play.settle(&now);
    assert_eq!(play.tells(), now);
    // Started anew; the refresh that follows serves the hint as well.
    now.insert("p".to_owned(), ("b".to_owned(), 2));
    play.desk
        .hint(hint("p", "b", HintKind::Begun, 500), at(500));
    play.pump();
    assert!(looks(&play).is_empty());
    play.now = 510;
    play.desk.refresh("p", false, 1);
    play.pump();
    play.settle(&now);
    assert_eq!(play.answers.len(), 1);
    assert_eq!(play.tells(), now);
    play.now = 650;
    play.pump();
    assert!(looks(&play).is_empty(), "the hint was served");
    // Told late of what has been seen.
    play.desk
        .hint(hint("p", "b", HintKind::Ended, 505), at(650));
    play.pump();
    assert!(looks(&play).is_empty());
}

#[test]
fn a_change_that_an_event_brought_first_is_adopted_by_the_refresh() {
    let mut now = world(&[("p", "a", 2)]);
    let mut play = Play::new();
    play.settle(&now);
    now.get_mut("p").unwrap().1 = 3;
    play.desk
        .hint(hint("p", "a", HintKind::Ended, 100), at(100));
    play.now = 100;
    play.pump();
    play.settle(&now);
    play.desk.refresh("p", false, 1);
    play.pump();
    play.settle(&now);
    assert_eq!(play.adopted, 1);
    play.desk.refresh("p", false, 2);
    play.pump();
    play.settle(&now);
    assert_eq!(play.adopted, 1, "once");
}

#[test]
fn callers_during_a_look_wait_for_the_next_one_together() {
    let mut now = world(&[("p", "a", 2)]);
    let mut play = Play::new();
    play.settle(&now);
    play.desk.refresh("p", false, 1);
    play.pump();
    play.desk.refresh("p", false, 2);
    play.desk.refresh("p", false, 3);
    play.pump();
    assert_eq!(looks(&play), ["p"], "one at a time");
    play.end(0, &now);
    assert_eq!(play.answers.last().unwrap().1, [1]);
    now.get_mut("p").unwrap().1 = 3;
    play.settle(&now);
    assert_eq!(play.answers.last().unwrap().1, [2, 3]);
    assert_eq!(play.tells(), now);
}

#[test]
fn a_refresh_of_nothing_is_answered_and_leaves_nothing() {
    let mut play = Play::new();
    play.settle(&World::new());
    play.desk.refresh("p", false, 1);
    play.pump();
    play.settle(&World::new());
    assert_eq!(play.answers, [("p".to_owned(), vec![1], Ok(()))]);
    assert!(play.desk.pods.is_empty());
    play.desk.refresh("p", false, 2);
    play.pump();
    play.fail(0);
    assert!(play.answers.last().unwrap().2.is_err());
    assert!(play.desk.pods.is_empty());
}

#[test]
fn hung_pods_do_not_hold_the_others() {
    let pods: Vec<_> = (0..LOOKS + 5).map(|n| format!("p{n}")).collect();
    let world: World = pods
        .iter()
        .map(|uid| (uid.clone(), (format!("c-{uid}"), 2)))
        .collect();
    let mut play = Play::new();
    play.end(0, &world);
    assert_eq!(play.asked.len(), LOOKS);
    play.desk.refresh("other", false, 1);
    play.pump();
    assert_eq!(looks(&play).last(), Some(&"other"));
}

#[derive(Debug, Clone)]
enum Move {
    Change { pod: u8, id: u8, phase: i32 },
    Remove { pod: u8 },
    Refresh { pod: u8 },
    ProcessEnded { pod: u8, id: u8 },
    End { which: usize, early: bool },
    Fail { which: usize },
    Events { flow: bool },
    Wait { millis: i64 },
}

fn moves() -> impl Strategy<Value = (Move, bool)> {
    let one = prop_oneof![
        4 => (0u8..4, 0u8..2, 1i32..4).prop_map(|(pod, id, phase)| Move::Change { pod, id, phase }),
        1 => (0u8..4).prop_map(|pod| Move::Remove { pod }),
        2 => (0u8..4).prop_map(|pod| Move::Refresh { pod }),
        2 => (0u8..4, 0u8..2).prop_map(|(pod, id)| Move::ProcessEnded { pod, id }),
        6 => (0usize..8, any::<bool>()).prop_map(|(which, early)| Move::End { which, early }),
        1 => (0usize..8).prop_map(|which| Move::Fail { which }),
        1 => any::<bool>().prop_map(|flow| Move::Events { flow }),
        3 => (1i64..3000).prop_map(|millis| Move::Wait { millis }),
    ];
    (one, any::<bool>())
}

proptest! {
    /// Whatever happens, is lost, fails or comes late: in the end what is told is what is.
    #[test]
    fn in_the_end_the_truth_is_told(moves in prop::collection::vec(moves(), 0..80)) {
        let mut world = World::new();
        let mut play = Play::new();
        let mut tokens = 0;
        for (one, told) in moves {
            play.world = world.clone();
            match one {
                Move::Change { pod, id, phase } => {
                    let (uid, id) = (format!("p{pod}"), format!("c{pod}{id}"));
                    // A container never goes back.
                    let before = world.get(&uid).filter(|(old, _)| *old == id).map_or(0, |(_, p)| *p);
                    let phase = phase.max(before);
                    world.insert(uid.clone(), (id.clone(), phase));
                    let kind = if phase == 3 { HintKind::Ended } else { HintKind::Begun };
                    if told { play.desk.hint(hint(&uid, &id, kind, play.now), at(play.now)); }
                }
                Move::Remove { pod } => {
                    let uid = format!("p{pod}");
                    if let Some((id, _)) = world.remove(&uid).filter(|_| told) {
                        play.desk.hint(hint("", &id, HintKind::Removed, play.now), at(play.now));
                    }
                }
                Move::Refresh { pod } => { tokens += 1; play.desk.refresh(&format!("p{pod}"), false, tokens); }
                Move::ProcessEnded { pod, id } => {
                    play.desk.process_ended(&format!("c{pod}{id}"), at(play.now));
                }
                Move::End { which, early } if !play.asked.is_empty() => {
                    let which = which % play.asked.len();
                    if early { play.end_early(which) } else { play.end(which, &world) }
                }
                Move::Fail { which } if !play.asked.is_empty() => play.fail(which % play.asked.len()),
                Move::Events { flow } => play.desk.events(flow, at(play.now)),
                Move::Wait { millis } => play.now += millis,
                _ => {}
            }
            play.world = world.clone();
            play.pump();
            let mut at_once: Vec<_> = looks(&play);
            at_once.sort();
            let all = at_once.len();
            at_once.dedup();
            prop_assert_eq!(all, at_once.len(), "two looks at one pod");
        }
        play.settle(&world);
        play.pass(61_000, &world);
        prop_assert_eq!(play.tells(), world);
        prop_assert!(play.whole);
        let answered: usize = play.answers.iter().map(|(_, tokens, _)| tokens.len()).sum();
        prop_assert_eq!(answered as u64, tokens, "every caller has one answer");
    }
}
