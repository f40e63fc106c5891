//! Volumes, declared under the name of this life.

use super::*;

#[test]
fn a_declarer_that_was_followed_takes_another_name_and_declares_all_anew() {
    use crate::core::learn::Trouble;
    let (mut all, notes) = heard(Kept::default());
    all.take(Input::Volumes(Update::Synced), at(0));
    for uid in ["u1", "u2"] {
        let volumes = json!([{"name": "data", "emptyDir": {}}]);
        all.take(
            Input::Config(SOURCES[0].into(), wants(uid, uid, volumes)),
            at(1),
        );
    }
    sources_heard(&mut all);
    all.work(at(1));
    let first = notes.declared.take();
    let name = first.first().expect("volumes are declared").0;
    assert_eq!(first, [(name, "u1".to_owned()), (name, "u2".to_owned())]);
    let ended = |all: &mut Coordinator, uid: &str, outcome: Outcome| {
        let done = Input::StepDone {
            uid: uid.to_owned(),
            key: StepKey::Volumes,
            outcome: Box::new(outcome),
            state: None,
        };
        all.take(done, at(2));
        all.work(at(2));
    };
    let taken = |all: &Coordinator, uid: &str| Outcome::Declared {
        digest: all.workers[uid].pod.wanted.as_ref().unwrap().digest.clone(),
        sequence: 1,
        seen: Vec::new(),
    };
    let followed = || {
        Outcome::Failed(Trouble {
            followed: true,
            ..Trouble::default()
        })
    };
    // The first was heard; before the second came a call of somebody dead.
    let accepted = taken(&all, "u1");
    ended(&mut all, "u1", accepted);
    ended(&mut all, "u2", followed());
    let second = notes.declared.take();
    let next = second.first().expect("declared anew at once").0;
    assert_ne!(name, next);
    assert_eq!(second, [(next, "u1".to_owned()), (next, "u2".to_owned())]);
    let accepted = taken(&all, "u1");
    ended(&mut all, "u1", accepted);
    assert!(notes.completed.borrow().is_empty());
    let accepted = taken(&all, "u2");
    ended(&mut all, "u2", accepted);
    assert_eq!(notes.completed.take(), [(next, 2)]);
    // The end as well may come after somebody dead; a late word on a former end says nothing.
    let refused = || {
        Err(Trouble {
            followed: true,
            ..Trouble::default()
        })
    };
    all.take(Input::Completed(name, Ok(())), at(3));
    assert!(!all.completed);
    all.take(Input::Completed(next, refused()), at(3));
    all.work(at(3));
    assert_eq!(notes.declared.take().len(), 2);
}
