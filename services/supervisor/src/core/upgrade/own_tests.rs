use std::time::Duration;

use super::*;
use crate::core::upgrade::next::tests::journal_of;
use crate::core::upgrade::next::{ObservedProcess, first_stage_back};

fn journal(stage: SwapStage, back: Option<&str>) -> UpgradeJournal {
    let mut journal = journal_of("supervisor", stage);
    journal.back = back.map(str::to_owned);
    journal
}

/// `own` is the version of this program, `image` identifies it; the one from before is `a`.
fn seen<'a>(active: &'a str, own: Option<&'a str>, image: &'a str) -> SwapObservation<'a> {
    SwapObservation {
        active: Some(active),
        process: ObservedProcess::Running(image),
        own_version: own,
        refusal: None,
        verdict: &StepVerdict::InStep,
        stage_age: Duration::ZERO,
        in_step_for: STABLE_FOR,
    }
}

fn restart() -> SwapStage {
    SwapStage::Restart {
        process: Some("a".to_owned()),
    }
}

fn rolled_back(cause: &str) -> SwapAction {
    SwapAction::Finish(UpgradeOutcome::RolledBack {
        cause: cause.to_owned(),
    })
}

const ENDED: &str = "the supervisor ended before 2 was in step";

#[test]
fn the_link_is_changed_last() {
    use SwapStage::{Activate, Drain, Verify};
    let done = SwapAction::Finish(UpgradeOutcome::Done);
    for (stage, seen, expected) in [
        (
            Drain,
            seen("1", Some("1"), "a"),
            SwapAction::Record(restart()),
        ),
        (restart(), seen("1", Some("1"), "a"), SwapAction::Restart),
        (
            restart(),
            seen("1", Some("2"), "b"),
            SwapAction::Record(Verify),
        ),
        (
            Verify,
            seen("1", Some("2"), "b"),
            SwapAction::Record(Activate),
        ),
        (Activate, seen("1", Some("2"), "b"), SwapAction::Activate),
        (Activate, seen("2", Some("2"), "b"), done),
    ] {
        let journal = journal(stage, None);
        assert_eq!(next(&journal, &seen), expected, "{:?}", journal.stage);
    }
}

#[test]
fn a_stage_that_could_not_be_recorded_is_not_repeated() {
    let replaced = next(&journal(SwapStage::Drain, None), &seen("1", Some("2"), "b"));
    assert_eq!(replaced, SwapAction::Record(SwapStage::Verify));
}

#[test]
fn a_crash_at_any_stage_leads_to_the_program_of_the_link() {
    use SwapStage::{Activate, Drain, Verify};
    // Not yet begun: it begins.
    let first = seen("1", Some("1"), "c");
    let begun = SwapAction::Record(SwapStage::Restart {
        process: Some("c".to_owned()),
    });
    assert_eq!(next(&journal(Drain, None), &first), begun);
    for stage in [restart(), Verify, Activate] {
        assert_eq!(
            next(&journal(stage.clone(), None), &first),
            rolled_back(ENDED)
        );
        // Of a file that is no version yet.
        let unversioned = seen("1", None, "c");
        let ended = next(&journal(stage, None), &unversioned);
        assert_eq!(ended, rolled_back(ENDED));
    }
    // After the change of the link.
    let changed = next(&journal(Activate, None), &seen("2", Some("2"), "c"));
    assert_eq!(changed, SwapAction::Finish(UpgradeOutcome::Done));
    // On the way back.
    for (stage, expected) in [
        (Drain, SwapAction::Record(Verify)),
        (restart(), SwapAction::Record(Verify)),
        (Verify, SwapAction::Record(Activate)),
        (Activate, rolled_back("x")),
    ] {
        assert_eq!(next(&journal(stage, Some("x")), &first), expected);
    }
}

#[test]
fn a_program_that_refuses_or_does_not_work_is_left() {
    let refused = SwapObservation {
        refusal: Some("no such directory"),
        ..seen("1", Some("1"), "b")
    };
    let left = next(&journal(restart(), None), &refused);
    assert_eq!(left, rolled_back("no such directory"));
    let not_replaced = on_refusal(&journal(restart(), None), "exec format error".to_owned());
    assert_eq!(not_replaced, rolled_back("exec format error"));

    let behind = StepVerdict::Behind("x".to_owned());
    let late = SwapObservation {
        verdict: &behind,
        stage_age: Duration::from_secs(10),
        ..seen("1", Some("2"), "b")
    };
    let turned = next(&journal(SwapStage::Verify, None), &late);
    assert_eq!(turned, SwapAction::TurnBack("x (within 10s)".to_owned()));
    let back = journal(SwapStage::Drain, Some("x"));
    let action = next(&back, &seen("1", Some("2"), "b"));
    let SwapAction::Record(stage) = action else {
        panic!("{action:?}");
    };
    let back = journal(stage, Some("x"));
    assert_eq!(next(&back, &seen("1", Some("2"), "b")), SwapAction::Restart);
    let returned = seen("1", Some("1"), "c");
    assert_eq!(
        next(&back, &returned),
        SwapAction::Record(SwapStage::Verify)
    );
    // Neither works.
    let failed = on_refusal(&back, "y".to_owned());
    let cause = "x; and after the rollback: y".to_owned();
    assert_eq!(failed, SwapAction::Finish(UpgradeOutcome::Failed { cause }));
}

#[test]
fn without_a_way_back_the_link_names_the_new_version() {
    let behind = StepVerdict::Failing("x".to_owned());
    let failing = |active| SwapObservation {
        verdict: &behind,
        ..seen(active, Some("2"), "b")
    };
    let mut journal = journal(SwapStage::Verify, None);
    journal.swap.one_way = true;
    assert_eq!(next(&journal, &failing("1")), SwapAction::Activate);
    let cause = "x; there is no way back".to_owned();
    let failed = SwapAction::Finish(UpgradeOutcome::Failed { cause });
    assert_eq!(next(&journal, &failing("2")), failed);
}

/// How version 2 behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Behaviour {
    Works,
    /// It is never in step.
    Fails,
    /// It ends as soon as it is started.
    Ends,
    /// It returns to the program before.
    Refuses,
}

const BEHAVIOURS: [Behaviour; 4] = [
    Behaviour::Works,
    Behaviour::Fails,
    Behaviour::Ends,
    Behaviour::Refuses,
];
/// More than the operations of any upgrade with its way back.
const MAX_OPERATIONS: u32 = 100;

/// The supervisor of a node. A service manager starts what the link names when it has ended.
#[derive(Debug, Clone)]
struct World {
    link: &'static str,
    /// The version that runs, and the number of its image.
    running: (&'static str, u32),
    behaviour: Behaviour,
    /// Why version 2 has returned to the program that runs.
    refusal: Option<&'static str>,
    journal: Option<UpgradeJournal>,
    /// What another program finds.
    recorded: Option<UpgradeJournal>,
    /// How many more records succeed: the disk is full then.
    records: u32,
    outcome: Option<UpgradeOutcome>,
    operations: u32,
    all_operations: u32,
}

impl World {
    /// `records` stages can be recorded after the first.
    fn start(behaviour: Behaviour, records: u32) -> World {
        let begun = Some(journal(SwapStage::Drain, None));
        World {
            link: "1",
            running: ("1", 1),
            behaviour,
            refusal: None,
            journal: begun.clone(),
            recorded: begun,
            records,
            outcome: None,
            operations: 0,
            all_operations: 0,
        }
    }

    fn crash(&mut self) {
        self.run_program(self.link);
        self.operations = 0;
    }

    /// Another program begins with what is recorded.
    fn run_program(&mut self, version: &'static str) {
        self.running = (version, self.running.1 + 1);
        self.refusal = None;
        self.journal.clone_from(&self.recorded);
    }

    /// Whether the journal could be recorded.
    fn record(&mut self) -> bool {
        let has_room = self.records > 0;
        if has_room {
            self.records -= 1;
            self.recorded.clone_from(&self.journal);
        }
        has_room
    }

    fn finish(&mut self, outcome: UpgradeOutcome) {
        self.outcome = Some(outcome);
        self.journal = None;
        self.record();
    }

    /// The process is replaced. It may be so once more.
    fn restart(&mut self, version: &'static str) {
        let before = self.running.0;
        self.run_program(version);
        match self.behaviour {
            Behaviour::Ends if version == "2" => self.crash(),
            Behaviour::Refuses if version == "2" => {
                self.run_program(before);
                self.refusal = Some("refused");
            }
            _ => {}
        }
    }

    /// Runs until the end, or until the supervisor is killed before its operation of that number.
    fn run(&mut self, crash_before: u32) {
        while let Some(mut journal) = self.journal.clone() {
            let image = self.running.1.to_string();
            let verdict = match (self.running.0, self.behaviour) {
                ("2", Behaviour::Fails) => StepVerdict::Failing("broken".to_owned()),
                _ => StepVerdict::InStep,
            };
            let seen = SwapObservation {
                verdict: &verdict,
                refusal: self.refusal,
                ..seen(self.link, Some(self.running.0), &image)
            };
            let action = next(&journal, &seen);
            self.all_operations += 1;
            assert!(
                self.all_operations < MAX_OPERATIONS,
                "without end: {self:?}"
            );
            self.operations += 1;
            if self.operations == crash_before {
                return self.crash();
            }
            let target = if journal.target() == "2" { "2" } else { "1" };
            match action {
                SwapAction::Record(stage) => journal.stage = stage,
                SwapAction::TurnBack(cause) => {
                    journal.back = Some(cause);
                    journal.stage = first_stage_back(&journal);
                }
                SwapAction::Activate => {
                    self.link = target;
                    continue;
                }
                SwapAction::Restart => {
                    self.restart(target);
                    continue;
                }
                SwapAction::Finish(outcome) => return self.finish(outcome),
                other => panic!("{other:?} of {journal:?}"),
            }
            self.journal = Some(journal.clone());
            if !self.record()
                && let Some(outcome) = on_unrecorded(&journal, "no space left")
            {
                return self.finish(outcome);
            }
        }
    }

    fn assert_end(&self, what: &str) {
        let version = match self.outcome {
            Some(UpgradeOutcome::Done) => "2",
            Some(UpgradeOutcome::RolledBack { .. }) => "1",
            _ => panic!("{what}: {self:?}"),
        };
        assert_eq!(
            (self.link, self.running.0),
            (version, version),
            "{what}: {self:?}"
        );
        assert!(
            version == "1" || self.behaviour == Behaviour::Works,
            "{what}: {self:?}"
        );
    }
}

#[test]
fn after_a_crash_before_any_operation_the_link_names_what_runs() {
    for behaviour in BEHAVIOURS {
        let mut undisturbed = World::start(behaviour, u32::MAX);
        undisturbed.run(0);
        undisturbed.assert_end("without a crash");
        let works = behaviour == Behaviour::Works;
        assert_eq!(undisturbed.link == "2", works, "{undisturbed:?}");
        // The count begins anew with a crash.
        for first in 1..=12 {
            for second in 0..=12 {
                let mut world = World::start(behaviour, u32::MAX);
                world.run(first);
                world.run(second);
                world.run(0);
                world.assert_end(&format!("crashes at {first}, {second}"));
            }
        }
    }
}

#[test]
fn an_upgrade_ends_when_the_disk_is_full() {
    for behaviour in BEHAVIOURS {
        for records in 0..=8 {
            for crash in 0..=12 {
                let mut world = World::start(behaviour, records);
                world.run(crash);
                world.run(0);
                world.assert_end(&format!("{records} records, crash at {crash}"));
            }
        }
    }
    // The other program is not started.
    let mut world = World::start(Behaviour::Works, 0);
    world.run(0);
    assert_eq!(world.running, ("1", 1));
}

#[test]
fn only_the_way_forth_needs_its_record() {
    use SwapStage::{Activate, Drain, Verify};
    let cause = "the replacement of the supervisor could not be recorded: x".to_owned();
    let ended = Some(UpgradeOutcome::RolledBack { cause });
    for (service, stage, back, expected) in [
        ("supervisor", restart(), None, ended),
        ("supervisor", restart(), Some("y"), None),
        ("supervisor", Drain, None, None),
        ("supervisor", Verify, None, None),
        ("supervisor", Activate, None, None),
        ("pleg", restart(), None, None),
    ] {
        let mut journal = journal_of(service, stage);
        journal.back = back.map(str::to_owned);
        assert_eq!(on_unrecorded(&journal, "x"), expected, "{journal:?}");
    }
}
