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
        given_up: None,
        excused: Vec::new(),
        queue: Vec::new(),
        resumed: false,
    }
}

fn seen<'a>(active: &'a str, process: Option<&'a str>) -> SwapObservation<'a> {
    SwapObservation {
        active: Some(active),
        process: process.map_or(ObservedProcess::Absent, ObservedProcess::Running),
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

#[test]
fn an_unknown_process_is_asked_for_again() {
    let (early, late) = (Duration::from_secs(9), Duration::from_secs(10));
    let cause = "its process is unknown: no systemd";
    let turned = SwapAction::TurnBack(cause.to_owned());
    let given_up = SwapAction::GiveUp(format!("x; and after the rollback: {cause}"));
    for (stage, back, stage_age, expected) in [
        (SwapStage::Activate, None, early, SwapAction::Wait),
        (restart(Some("a")), None, early, SwapAction::Wait),
        (SwapStage::Activate, None, late, turned.clone()),
        (restart(Some("a")), None, late, turned),
        (restart(Some("a")), Some("x"), late, given_up),
    ] {
        let mut journal = journal(stage);
        journal.back = back.map(str::to_owned);
        let unknown = SwapObservation {
            process: ObservedProcess::Unknown("no systemd"),
            stage_age,
            ..seen("2", None)
        };
        assert_eq!(next(&journal, &unknown), expected, "{:?}", journal.stage);
    }
}

#[test]
fn a_swap_does_not_fail_before_the_drained_process_is_replaced() {
    let failed = |back: Option<&str>, one_way, stage, active| {
        let mut journal = journal(stage);
        journal.back = back.map(str::to_owned);
        journal.swap.one_way = one_way;
        on_failed_step(&journal, Some(active), Duration::ZERO, "y".to_owned())
    };
    let activate = SwapStage::Activate;
    let turned = SwapAction::TurnBack("y".to_owned());
    let no_way = SwapAction::GiveUp("y; there is no way back".to_owned());
    let neither = SwapAction::GiveUp("x; and after the rollback: y".to_owned());
    for (found, expected) in [
        (failed(None, false, activate.clone(), "1"), &turned),
        // The new program has never run.
        (failed(None, true, activate.clone(), "1"), &turned),
        (failed(None, true, activate.clone(), "2"), &no_way),
        (failed(None, true, restart(Some("a")), "2"), &no_way),
        (failed(Some("x"), false, activate, "2"), &neither),
        (failed(Some("x"), true, restart(Some("a")), "1"), &neither),
    ] {
        assert_eq!(&found, expected);
    }
}

#[test]
fn a_swap_that_was_given_up_ends_with_another_process() {
    let given_up = |stage| {
        let mut journal = journal(stage);
        journal.given_up = Some("x".to_owned());
        journal
    };
    let failed = |cause: &str| {
        SwapAction::Finish(UpgradeOutcome::Failed {
            cause: cause.to_owned(),
        })
    };
    for (stage, process, expected) in [
        (
            SwapStage::Activate,
            "a",
            SwapAction::Record(restart(Some("a"))),
        ),
        (restart(Some("a")), "a", SwapAction::Restart),
        (restart(Some("a")), "b", failed("x")),
    ] {
        let journal = given_up(stage);
        assert_eq!(next(&journal, &seen("1", Some(process))), expected);
    }
    let journal = given_up(restart(Some("a")));
    let again = |stage_age| on_failed_step(&journal, Some("1"), stage_age, "y".to_owned());
    assert_eq!(again(Duration::from_secs(59)), SwapAction::Wait);
    let end = failed("x; it is drained and could not be restarted: y");
    assert_eq!(again(LAST_RESTART_TIMEOUT), end);
}
