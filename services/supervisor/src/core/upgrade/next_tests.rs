use jiff::Timestamp;

use super::*;
use crate::core::upgrade::journal::{ProgramSwap, UpgradeKind};

fn journal(stage: SwapStage) -> UpgradeJournal {
    journal_of("pleg", stage)
}

pub(crate) fn journal_of(service: &str, stage: SwapStage) -> UpgradeJournal {
    UpgradeJournal {
        run: 1,
        kind: UpgradeKind::Upgrade,
        timeout_ms: 10_000,
        swap: ProgramSwap {
            service: service.to_owned(),
            from: "1".to_owned(),
            to: "2".to_owned(),
            one_way: false,
        },
        started_at: Timestamp::UNIX_EPOCH,
        stage,
        back: None,
        excused: Vec::new(),
        queue: Vec::new(),
        resumed: false,
    }
}

fn seen<'a>(active: &'a str, process: Option<&'a str>) -> SwapObservation<'a> {
    SwapObservation {
        active: Some(active),
        process,
        own_version: None,
        refusal: None,
        verdict: &StepVerdict::InStep,
        stage_age: Duration::ZERO,
        in_step_for: STABLE_FOR,
    }
}

fn restart(process: Option<&str>) -> SwapStage {
    SwapStage::Restart {
        process: process.map(str::to_owned),
    }
}

#[test]
fn each_stage_leads_to_the_next() {
    let (drain, activate, verify) = (SwapStage::Drain, SwapStage::Activate, SwapStage::Verify);
    for (stage, active, process, expected) in [
        (drain, "1", Some("a"), SwapAction::Drain),
        (activate.clone(), "1", Some("a"), SwapAction::Activate),
        (
            activate.clone(),
            "2",
            Some("a"),
            SwapAction::Record(restart(Some("a"))),
        ),
        (activate, "2", None, SwapAction::Record(restart(None))),
        (restart(Some("a")), "2", Some("a"), SwapAction::Restart),
        (restart(Some("a")), "2", None, SwapAction::Restart),
        (restart(None), "2", None, SwapAction::Restart),
        (
            restart(None),
            "2",
            Some("b"),
            SwapAction::Record(verify.clone()),
        ),
        (
            restart(Some("a")),
            "2",
            Some("b"),
            SwapAction::Record(verify.clone()),
        ),
        (
            verify,
            "2",
            Some("b"),
            SwapAction::Finish(UpgradeOutcome::Done),
        ),
    ] {
        let (journal, seen) = (journal(stage), seen(active, process));
        assert_eq!(next(&journal, &seen), expected, "{:?}", journal.stage);
    }
}

#[test]
fn a_program_that_does_not_work_is_rolled_back_once() {
    let mut journal = journal(SwapStage::Verify);
    let behind = StepVerdict::Behind("pleg is not serving".to_owned());
    let failing = StepVerdict::Failing("pleg exited 3 times".to_owned());
    let observed = |verdict, stage_age| SwapObservation {
        verdict,
        stage_age,
        ..seen("2", Some("b"))
    };
    let (early, late) = (Duration::from_secs(9), Duration::from_secs(10));
    assert_eq!(next(&journal, &observed(&behind, early)), SwapAction::Wait);
    let cause = "pleg is not serving (within 10s)".to_owned();
    let back = SwapAction::TurnBack(cause.clone());
    assert_eq!(next(&journal, &observed(&behind, late)), back);
    let at_once = SwapAction::TurnBack("pleg exited 3 times".to_owned());
    assert_eq!(next(&journal, &observed(&failing, early)), at_once);
    // Not yet stable, though late.
    let unstable = SwapObservation {
        in_step_for: STABLE_FOR / 2,
        ..observed(&StepVerdict::InStep, late)
    };
    assert_eq!(next(&journal, &unstable), SwapAction::Wait);

    journal.back = Some(cause.clone());
    assert_eq!(journal.target(), "1");
    let outcome = UpgradeOutcome::RolledBack { cause };
    let rolled_back = SwapAction::Finish(outcome);
    assert_eq!(next(&journal, &seen("1", Some("c"))), rolled_back);
    let failed = |action: &SwapAction, text: &str| match action {
        SwapAction::Finish(UpgradeOutcome::Failed { cause }) => assert_eq!(cause, text),
        other => panic!("{other:?}"),
    };
    failed(
        &next(&journal, &observed(&failing, early)),
        "pleg is not serving (within 10s); and after the rollback: pleg exited 3 times",
    );
    journal.back = None;
    journal.swap.one_way = true;
    failed(
        &next(&journal, &observed(&failing, early)),
        "pleg exited 3 times; there is no way back",
    );
}

/// A node with one service, as far as an upgrade of it is concerned.
#[derive(Debug, Clone)]
struct World {
    link: &'static str,
    /// Version and number of the process, and whether it was drained.
    process: (&'static str, u32, bool),
    /// Whether version 2 works.
    works: bool,
    journal: Option<UpgradeJournal>,
    outcome: Option<UpgradeOutcome>,
    /// Effects and writes so far.
    operations: u32,
}

impl World {
    fn start(works: bool) -> World {
        World {
            link: "1",
            process: ("1", 1, false),
            works,
            journal: Some(journal(SwapStage::Drain)),
            outcome: None,
            operations: 0,
        }
    }

    fn spawn(&mut self) {
        self.process = (self.link, self.process.1 + 1, false);
    }

    /// The supervisor is killed; without systemd its children are, too.
    fn crash(&mut self, children_die: bool) {
        if children_die {
            self.spawn();
        }
    }

    /// Runs until the end, or until the supervisor is killed before its operation of that number.
    fn run(&mut self, crash_before: u32) {
        while let Some(mut journal) = self.journal.clone() {
            let process = self.process.1.to_string();
            let verdict = match self.process {
                (_, _, true) => StepVerdict::Behind("drained".to_owned()),
                ("2", ..) if !self.works => StepVerdict::Failing("broken".to_owned()),
                _ => StepVerdict::InStep,
            };
            let seen = SwapObservation {
                active: Some(self.link),
                process: Some(&process),
                own_version: None,
                refusal: None,
                verdict: &verdict,
                stage_age: Duration::from_secs(60),
                in_step_for: STABLE_FOR,
            };
            let action = next(&journal, &seen);
            let (effect, stage) = match action {
                SwapAction::Drain => (Some(SwapAction::Drain), Some(SwapStage::Activate)),
                SwapAction::Restart => (Some(SwapAction::Restart), Some(SwapStage::Verify)),
                SwapAction::Activate => (Some(SwapAction::Activate), None),
                SwapAction::Record(stage) => (None, Some(stage)),
                SwapAction::TurnBack(cause) => {
                    journal.back = Some(cause);
                    (None, Some(SwapStage::Activate))
                }
                SwapAction::Finish(outcome) => {
                    if self.is_killed(crash_before) {
                        return;
                    }
                    self.outcome = Some(outcome);
                    self.journal = None;
                    return;
                }
                SwapAction::Wait => panic!("nothing changes by itself: {journal:?}"),
            };
            if let Some(effect) = effect {
                if self.is_killed(crash_before) {
                    return;
                }
                match effect {
                    SwapAction::Drain => self.process.2 = true,
                    SwapAction::Activate => {
                        self.link = if journal.target() == "2" { "2" } else { "1" };
                    }
                    _ => self.spawn(),
                }
            }
            if let Some(stage) = stage {
                if self.is_killed(crash_before) {
                    return;
                }
                journal.stage = stage;
                self.journal = Some(journal);
            }
        }
    }

    fn is_killed(&mut self, crash_before: u32) -> bool {
        self.operations += 1;
        self.operations == crash_before
    }

    fn assert_end(&self, what: &str) {
        let version = if self.works { "2" } else { "1" };
        assert_eq!(self.link, version, "{what}: {self:?}");
        let (running, _, drained) = self.process;
        assert_eq!(running, version, "{what}: {self:?}");
        assert!(!drained, "{what}: {self:?}");
        let done = matches!(self.outcome, Some(UpgradeOutcome::Done));
        assert_eq!(done, self.works, "{what}: {self:?}");
        let rolled_back = matches!(self.outcome, Some(UpgradeOutcome::RolledBack { .. }));
        assert_eq!(rolled_back, !self.works, "{what}: {self:?}");
    }
}

#[test]
fn a_crash_before_and_after_every_effect_leads_to_the_same_end() {
    for works in [true, false] {
        let mut undisturbed = World::start(works);
        undisturbed.run(0);
        undisturbed.assert_end("without a crash");
        let operations = undisturbed.operations;
        assert!(operations >= if works { 7 } else { 12 }, "{operations}");
        for children_die in [true, false] {
            for first in 1..=operations {
                // A second crash while the first is recovered from.
                for second in 0..=operations {
                    let mut world = World::start(works);
                    world.run(first);
                    world.crash(children_die);
                    world.operations = 0;
                    world.run(second);
                    if world.journal.is_some() {
                        world.crash(children_die);
                        world.operations = 0;
                        world.run(0);
                    }
                    let what = format!("crashes at {first}, {second}, {children_die}");
                    world.assert_end(&what);
                }
            }
        }
    }
}
