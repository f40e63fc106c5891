use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn start(health: &mut RuntimeHealth, now: Timestamp) {
    assert!(health.next_due().is_some_and(|due| due <= now), "not due");
    assert!(health.start_due_check(now));
    assert!(!health.start_due_check(now), "two checks at once");
}

fn check(health: &mut RuntimeHealth, result: Result<HealthCheck, String>, now: Timestamp) -> bool {
    start(health, now);
    health.on_check(result, now)
}

fn up() -> Result<HealthCheck, String> {
    Ok(HealthCheck::default())
}

fn down() -> Result<HealthCheck, String> {
    Err("gone".to_owned())
}

/// Ready since 0.
fn ready() -> RuntimeHealth {
    let mut health = RuntimeHealth::new(at(0));
    check(&mut health, up(), at(0));
    health.on_list(None, at(0));
    assert!(health.status().ready && health.status().network_ready);
    health
}

#[test]
fn checks_are_frequent_while_down_and_rare_while_up() {
    let mut health = RuntimeHealth::new(at(0));
    assert!(!health.status().ready);
    assert!(!check(&mut health, down(), at(0)));
    assert_eq!(health.next_due(), Some(at(5)));
    assert!(!health.status().ready);
    assert_eq!(health.status().reason, "gone");
    health.on_failure(at(1));
    assert_eq!(health.next_due(), Some(at(5)), "known to be down");
    health.on_list(None, at(2));
    assert!(check(&mut health, up(), at(2)), "is back");
    assert!(health.status().ready && health.status().network_ready);
    assert_eq!(health.next_due(), Some(at(12)), "the network may be lost");
    health.on_failure(at(3));
    assert!(!check(&mut health, up(), at(3)));
    health.on_failure(at(4));
    check(&mut health, down(), at(4));
    assert_eq!(health.next_due(), Some(at(9)), "ready, but fails");
}

#[test]
fn a_runtime_that_answers_again_within_30_seconds_stays_ready() {
    let mut health = ready();
    for (now, result) in [(10, down()), (15, down()), (29, up()), (39, down())] {
        check(&mut health, result, at(now));
        assert!(health.status().ready, "{now}");
    }
    assert!(!health.start_due_check(at(43)));
    assert!(health.status().ready && health.status().network_ready);
}

#[test]
fn a_runtime_that_has_not_answered_for_30_seconds_is_not_ready() {
    let mut health = ready();
    for now in [10, 15, 20, 25] {
        check(&mut health, down(), at(now));
        assert!(health.status().ready, "{now}");
    }
    start(&mut health, at(30));
    assert!(!health.status().ready);
    assert_eq!(health.status().reason, "gone");
    health.on_check(down(), at(30));
    assert_eq!(health.next_due(), Some(at(35)));
    assert!(!check(&mut health, down(), at(35)));
    assert!(!health.status().ready);
    assert!(check(&mut health, up(), at(40)));
    assert!(health.status().ready);
}

#[test]
fn a_hung_check_makes_the_runtime_not_ready_without_another_input() {
    let mut health = ready();
    start(&mut health, at(10));
    assert_eq!(health.next_due(), Some(at(30)));
    health.start_due_check(at(29));
    assert!(health.status().ready);
    health.start_due_check(at(30));
    assert_eq!(health.status().reason, "no answer to a health check");
    assert!(!health.status().ready);
    assert_eq!(health.next_due(), None);
    health.on_check(up(), at(31));
    assert!(health.status().ready);
}

#[test]
fn what_the_runtime_reports_counts_at_once() {
    let mut health = ready();
    let result = HealthCheck {
        not_ready: Some("shutting down".to_owned()),
        ..Default::default()
    };
    check(&mut health, Ok(result), at(10));
    assert!(!health.status().ready && health.status().network_ready);
    assert_eq!(health.status().reason, "shutting down");
    check(&mut health, down(), at(15));
    assert_eq!(health.status().reason, "shutting down");
}

#[test]
fn network_readiness_is_reported_separately() {
    let mut health = RuntimeHealth::new(at(0));
    let result = HealthCheck {
        network_not_ready: Some("cni config uninitialized".to_owned()),
        ..Default::default()
    };
    check(&mut health, Ok(result), at(0));
    assert!(health.status().ready && !health.status().network_ready);
    assert_eq!(health.next_due(), Some(at(5)));
}

#[test]
fn lists_that_fail_for_3_minutes_make_an_answering_runtime_not_ready() {
    let mut health = ready();
    let failed = || Some("list timed out".to_owned());
    health.on_list(failed(), at(1000));
    for now in (1000..1180).step_by(10) {
        check(&mut health, up(), at(now));
        health.on_list(failed(), at(now + 1));
        assert!(health.status().ready, "{now}");
    }
    assert!(!health.start_due_check(at(1179)));
    assert!(health.status().ready);
    assert_eq!(health.next_due(), Some(at(1180)));
    health.start_due_check(at(1180));
    assert!(!health.status().ready);
    assert_eq!(health.status().reason, "list timed out");
    health.on_list(None, at(1181));
    assert!(health.status().ready);
    health.on_list(failed(), at(1182));
    assert!(health.status().ready, "a new failure");
}

#[test]
fn a_failed_list_counts_at_once_before_any_has_succeeded() {
    let mut health = RuntimeHealth::new(at(0));
    check(&mut health, up(), at(0));
    health.on_list(Some("list timed out".to_owned()), at(1));
    assert!(!health.status().ready);
    assert_eq!(
        health.next_due(),
        Some(at(1)),
        "the check is brought forward"
    );
    health.on_list(None, at(2));
    assert!(health.status().ready);
}

#[test]
fn time_without_checks_is_no_silence_of_the_runtime() {
    let mut health = ready();
    start(&mut health, at(3600));
    assert!(health.status().ready);
    health.on_check(down(), at(3600));
    assert!(health.status().ready);
    assert_eq!(health.next_due(), Some(at(3605)));
}

#[test]
fn a_clock_that_was_set_back_delays_nothing() {
    let mut health = RuntimeHealth::new(at(3600));
    check(&mut health, up(), at(3600));
    health.on_list(None, at(3600));
    health.start_due_check(at(0));
    assert_eq!(health.next_due(), Some(at(10)));
    check(&mut health, down(), at(10));
    assert!(health.status().ready);
    health.start_due_check(at(30));
    assert!(!health.status().ready);
}
