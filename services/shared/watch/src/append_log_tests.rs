use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// What a watcher has, as the messages that it was sent tell.
#[derive(Default)]
struct Watcher {
    has: BTreeSet<u64>,
    received: Vec<u64>,
    position: Option<Position>,
}

impl Watcher {
    /// Reads what is there until the stream waits.
    fn read(&mut self, cursor: &mut LogCursor, entries: &LogEntries) {
        let mut queue = VecDeque::new();
        cursor.refill(entries, &mut queue);
        for change in queue {
            match change {
                Change::Reset => self.has.clear(),
                Change::Upsert(entry) => {
                    let (number, message): (u64, String) = decoded(entry);
                    assert_eq!(message, number.to_string());
                    self.has.insert(number);
                    self.received.push(number);
                }
                Change::Remove(number) => assert!(self.has.remove(&number), "{number}"),
                Change::Synced(position) => self.position = Some(position),
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    RemoveOldest(usize),
    Read,
    Reconnect,
    /// The server starts anew.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..5usize).prop_map(Step::Push),
        2 => (0..6usize).prop_map(Step::RemoveOldest),
        3 => Just(Step::Read),
        1 => Just(Step::Reconnect),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    /// Each message that is there when the watcher reads is received once by a watcher of one server, in
    /// order, and the watcher that stays connected has exactly those that are there.
    #[test]
    fn a_watcher_receives_each_message_once(steps in steps()) {
        let (mut entries, mut instance) = (LogEntries::new("0"), 0);
        let mut cursor = LogCursor::new(None);
        let mut watcher = Watcher::default();
        // The first number that the watcher knows of this connection.
        let mut known_from = 1;
        for step in steps.into_iter().chain([Step::Read]) {
            match step {
                Step::Push(count) => for _ in 0..count {
                    let next = entries.last() + 1;
                    entries.push(&next.to_string());
                },
                Step::RemoveOldest(count) => entries.remove_oldest(count),
                Step::Read => {
                    let before = watcher.received.last().copied().unwrap_or_default();
                    let expected: Vec<u64> = entries.after(before).map(|(number, _)| number).collect();
                    let seen = watcher.received.len();
                    watcher.read(&mut cursor, &entries);
                    prop_assert_eq!(watcher.received.get(seen..), Some(&*expected));
                    // It is behind if what came last was removed before it was read.
                    let position = watcher.position.as_ref().map(|position| position.revision);
                    prop_assert!(position.is_some_and(|at| at <= entries.last()));
                    prop_assert!(position >= watcher.received.last().copied());
                    let has = watcher.has.iter().copied().filter(|number| *number >= known_from);
                    let there = entries.after(0).map(|(number, _)| number);
                    let there = there.filter(|number| *number >= known_from);
                    prop_assert_eq!(has.collect::<Vec<_>>(), there.collect::<Vec<_>>());
                }
                Step::Reconnect => {
                    cursor = LogCursor::new(watcher.position.clone());
                    // Of removals in between a watcher that resumes is not told.
                    known_from = entries.last() + 1;
                }
                Step::Restart => {
                    instance += 1;
                    entries = LogEntries::new(&instance.to_string());
                    cursor = LogCursor::new(watcher.position.clone());
                    watcher.received.clear();
                    known_from = 1;
                }
            }
        }
    }
}

#[test]
fn a_log_can_be_emptied() {
    let mut entries = LogEntries::new("1");
    for _ in 0..7 {
        entries.push(&"x".to_owned());
    }
    entries.remove_oldest(100);
    assert_eq!((entries.first, entries.last()), (8, 7));
    assert_eq!(entries.after(0).count(), 0);
    entries.push(&"y".to_owned());
    assert_eq!(
        entries.after(0).map(decoded).collect::<Vec<_>>(),
        [(8, "y".to_owned())]
    );
}

#[test]
fn entries_are_found_by_their_numbers() {
    let mut entries = LogEntries::new("1");
    for number in 1..=5 {
        entries.push(&number.to_string());
    }
    entries.remove_oldest(2);
    for (after, expected) in [
        (0, &[3, 4, 5][..]),
        (2, &[3, 4, 5]),
        (3, &[4, 5]),
        (4, &[5]),
        (5, &[]),
        (9, &[]),
    ] {
        let found = entries.after(after).map(decoded);
        let expected = expected.iter().map(|number| (*number, number.to_string()));
        assert!(found.eq(expected), "after {after}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_waits_for_messages_and_repeats_its_position() {
    let log = AppendLog::<String>::new("1");
    let mut stream = log.serve(None);
    assert_eq!(stream.next().await, Some(Change::Reset));
    let synced = |revision| {
        let incarnation = "1".to_owned();
        Some(Change::Synced(Position {
            incarnation,
            revision,
        }))
    };
    assert_eq!(stream.next().await, synced(0));
    // No message: the clock turns to the heartbeat.
    assert_eq!(stream.next().await, synced(0));
    let writer = log.clone();
    let pushed = tokio::spawn(async move { writer.push(&"a".to_owned()) });
    assert_eq!(
        stream.next().await,
        Some(Change::Upsert((1, "a".to_owned())))
    );
    assert_eq!(stream.next().await, synced(1));
    pushed.await.unwrap();
    log.remove_oldest(1);
    assert_eq!(stream.next().await, Some(Change::Remove(1)));
    assert_eq!(stream.next().await, synced(1));
}
