use super::*;

fn play(now: &World) -> Play {
    let mut play = Play::new();
    play.settle(now);
    play.now = 100;
    play
}

#[test]
fn looked_at_until_the_runtime_knows() {
    let mut now = world(&[("p", "a", 2)]);
    let mut play = play(&now);
    play.desk.process_ended("a", at(100));
    play.pump();
    assert_eq!(looks(&play), ["p"]);
    play.settle(&now);
    assert_eq!(play.tells(), now);
    assert_eq!(play.desk.due(), Some(at(105)));
    play.pass(20, &now);
    assert_eq!(play.desk.due(), Some(at(123)));
    now.get_mut("p").unwrap().1 = 3;
    play.pass(5, &now);
    assert_eq!(play.tells(), now);
    assert_eq!(play.desk.due(), Some(at(1000)), "only the list is due");
}

#[test]
fn a_runtime_that_never_knows_is_left_to_the_lists() {
    let now = world(&[("p", "a", 2)]);
    let mut play = play(&now);
    play.desk.process_ended("a", at(100));
    play.pump();
    play.settle(&now);
    play.pass(3000, &now);
    assert!(play.desk.timers.is_empty());
    assert!(looks(&play).is_empty());
}

#[test]
fn an_end_of_something_unknown_or_known_to_have_ended_is_passed_over() {
    let now = world(&[("p", "a", 3)]);
    let mut play = play(&now);
    for id in ["a", "b", ""] {
        play.desk.process_ended(id, at(100));
        play.pump();
        assert!(looks(&play).is_empty(), "{id:?}");
    }
}

#[test]
fn a_look_that_fails_is_made_again_in_its_own_time() {
    let mut now = world(&[("p", "a", 2)]);
    let mut play = play(&now);
    play.desk.process_ended("a", at(100));
    play.pump();
    play.fail(0);
    assert_eq!(play.desk.timers.get("p"), Some(&at(1100)));
    now.get_mut("p").unwrap().1 = 3;
    play.pass(1000, &now);
    assert_eq!(play.tells(), now);
    assert!(play.desk.timers.is_empty());
}
