use super::tests::journal_of;
use super::*;

/// A node with one service, as far as an upgrade of it is concerned.
#[derive(Debug, Clone)]
struct World {
    link: &'static str,
    /// Version and number of the process, and whether it was drained.
    process: (&'static str, u32, bool),
    /// Whether version 2 works.
    works: bool,
    /// How many of the next activations and restarts fail.
    failures: [u32; 2],
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
            failures: [0; 2],
            journal: Some(journal_of("pleg", SwapStage::Drain)),
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
                process: ObservedProcess::Running(&process),
                own_version: None,
                refusal: None,
                verdict: &verdict,
                stage_age: Duration::from_secs(60),
                in_step_for: STABLE_FOR,
            };
            let action = match next(&journal, &seen) {
                action if self.has_failed(&action) => {
                    let cause = "no space".to_owned();
                    on_failed_step(&journal, Some(self.link), Duration::ZERO, cause)
                }
                action => action,
            };
            let (effect, stage) = match action {
                SwapAction::Drain => (Some(SwapAction::Drain), Some(SwapStage::Activate)),
                SwapAction::Restart => match after_restart(&journal) {
                    SwapAction::Record(stage) => (Some(SwapAction::Restart), Some(stage)),
                    _ => (Some(SwapAction::Restart), None),
                },
                SwapAction::Activate => (Some(SwapAction::Activate), None),
                SwapAction::Record(stage) => (None, Some(stage)),
                SwapAction::TurnBack(cause) => {
                    journal.back = Some(cause);
                    (None, Some(SwapStage::Activate))
                }
                SwapAction::GiveUp(cause) => {
                    journal.given_up = Some(cause);
                    (None, Some(journal.stage.clone()))
                }
                SwapAction::Finish(outcome) => {
                    if self.is_killed(crash_before) {
                        return;
                    }
                    self.outcome = Some(outcome);
                    self.journal = None;
                    return;
                }
                SwapAction::Wait if journal.given_up.is_some() => continue,
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

    /// Whether a step is one of those that fail.
    fn has_failed(&mut self, action: &SwapAction) -> bool {
        let left = match action {
            SwapAction::Activate => &mut self.failures[0],
            SwapAction::Restart => &mut self.failures[1],
            _ => return false,
        };
        let fails = *left > 0;
        *left = left.saturating_sub(1);
        fails
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

#[test]
fn no_failed_step_and_no_crash_leave_a_drained_process() {
    for (failures, one_way) in [
        ([1, 0], true),
        ([1, 0], false),
        ([0, 1], true),
        ([0, 3], false),
        ([2, 1], true),
    ] {
        let start = || {
            let mut world = World::start(false);
            world.failures = failures;
            world.journal.as_mut().unwrap().swap.one_way = one_way;
            world
        };
        for children_die in [true, false] {
            for crash in 0..=20 {
                let mut world = start();
                world.run(crash);
                if world.journal.is_some() {
                    world.crash(children_die);
                    world.run(0);
                }
                let what = format!("{failures:?}, {one_way}, crash at {crash}");
                let (running, _, drained) = world.process;
                assert!(!drained, "{what}: {world:?}");
                assert_eq!(running, world.link, "{what}: {world:?}");
                assert!(world.outcome.is_some(), "{what}: {world:?}");
            }
        }
    }
}
