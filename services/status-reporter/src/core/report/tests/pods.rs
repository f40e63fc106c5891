//! When it is patched, and in what order.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::core::bucket::Bucket;
use crate::core::report::pods::{End, Job, Pods};
use crate::core::report::want::{Holds, Says, Step};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn says(name: &str, of: Value) -> Option<Says> {
    Some(Says {
        namespace: "n".to_owned(),
        name: name.to_owned(),
        status: status(of).into(),
        may_run: true,
        deletable: false,
    })
}

fn holds(uid: &str, of: Value) -> Option<Holds> {
    Some(Holds {
        uid: uid.to_owned(),
        status: status(of).into(),
    })
}

fn pending() -> Value {
    json!({ "phase": "Pending", "qosClass": "BestEffort", "conditions": [condition("PodScheduled", "True", 0)] })
}

fn creating() -> Value {
    with(
        running(),
        &[
            ("/phase", json!("Pending")),
            (
                "/conditions",
                json!([
                    condition("Ready", "False", 1),
                    condition("PodScheduled", "True", 0)
                ]),
            ),
            (
                "/containerStatuses/0/state",
                json!({ "waiting": { "reason": "ContainerCreating" } }),
            ),
            ("/podIP", Value::Null),
            ("/podIPs", Value::Null),
        ],
    )
}

fn exited() -> Value {
    let state = json!({ "terminated": { "exitCode": 1, "finishedAt": "2026-01-01T00:01:00Z" } });
    let not = condition("ContainersReady", "False", 3);
    with(
        running(),
        &[
            ("/containerStatuses/0/state", state),
            ("/conditions/1", not),
        ],
    )
}

struct Bench {
    pods: Pods,
    bucket: Bucket,
}

impl Bench {
    fn new() -> Self {
        Bench {
            pods: Pods::default(),
            bucket: Bucket::new(0.0, 0.0),
        }
    }

    fn due(&mut self, now: u64) -> Vec<Job> {
        self.pods.due(&mut self.bucket, ms(now))
    }

    fn names(&mut self, now: u64) -> Vec<String> {
        self.due(now).into_iter().map(|job| job.pod).collect()
    }

    /// The API server takes a patch; what it then holds.
    fn patched(&mut self, job: &Job, held: Value, now: u64) -> PodStatus {
        let Step::Patch(body) = &job.step else {
            panic!("{job:?}")
        };
        let after = applied(&status(held), body);
        self.pods
            .ended(job, End::Patched(Arc::new(after.clone())), ms(now));
        after
    }
}

#[test]
fn a_start_takes_two_patches_at_most() {
    let mut bench = Bench::new();
    bench.pods.hold("u", holds("u", pending()), ms(0));
    bench.pods.say("u", says("p", creating()), ms(0));
    assert!(bench.due(10).is_empty(), "a quick start says all at once");
    assert_eq!(bench.pods.next_due(), Some(ms(400)));
    bench.pods.say("u", says("p", running()), ms(145));
    let jobs = bench.due(145);
    assert_eq!(jobs.len(), 1, "ready goes at once");
    let after = bench.patched(&jobs[0], pending(), 150);
    assert!(bench.due(2000).is_empty());
    // The watch tells our own patch, or one from before it: nothing is said again.
    let mut late = Bench::new();
    late.pods.hold("u", holds("u", pending()), ms(0));
    late.pods.say("u", says("p", creating()), ms(0));
    let jobs = late.due(400);
    late.patched(&jobs[0], pending(), 405);
    let older = with(pending(), &[("/conditions/-", condition("x", "True", 1))]);
    late.pods.hold("u", holds("u", older), ms(406));
    assert!(late.due(406).is_empty());
    late.pods.say("u", says("p", running()), ms(600));
    assert_eq!(late.due(600).len(), 1);
    bench.pods.hold(
        "u",
        Some(Holds {
            uid: "u".into(),
            status: after.into(),
        }),
        ms(151),
    );
    assert!(bench.due(60_000).is_empty());
    assert_eq!(bench.pods.next_due(), None);
    assert!(bench.pods.is_acknowledged("u"));
}

#[test]
fn a_slow_start_is_told_once_on_the_way() {
    let mut bench = Bench::new();
    bench.pods.hold("u", holds("u", pending()), ms(0));
    bench.pods.say("u", says("p", creating()), ms(0));
    let jobs = bench.due(400);
    let status = bench.patched(&jobs[0], pending(), 405);
    let (uid, status) = ("u".to_owned(), status.into());
    bench.pods.hold("u", Some(Holds { uid, status }), ms(406));
    let waiting = json!({ "waiting": { "reason": "PodInitializing" } });
    let further = with(creating(), &[("/containerStatuses/0/state", waiting)]);
    bench.pods.say("u", says("p", further), ms(500));
    assert!(bench.due(1500).is_empty(), "another step on the way");
    assert_eq!(bench.pods.next_due(), Some(ms(2400)));
    bench.pods.say("u", says("p", running()), ms(1600));
    assert_eq!(bench.due(1600).len(), 1, "ready goes at once");
}

#[test]
fn the_more_start_at_once_the_longer_steps_gather() {
    let mut bench = Bench::new();
    for n in 0..200 {
        let pod = format!("p{n}");
        bench.pods.hold(&pod, holds(&pod, pending()), ms(0));
        bench.pods.say(&pod, says(&pod, creating()), ms(0));
    }
    // Nobody was beside the first when it came.
    assert!(bench.due(400).is_empty());
    assert!(bench.due(3999).is_empty());
    assert_eq!(bench.due(4000).len(), 8, "eight at once");
    let mut few = Bench::new();
    for n in 0..5 {
        let pod = format!("p{n}");
        few.pods.hold(&pod, holds(&pod, pending()), ms(0));
        few.pods.say(&pod, says(&pod, creating()), ms(0));
    }
    assert!(few.due(599).is_empty());
    // The last of them does not wait shorter because the others have come to their end.
    for n in 0..4 {
        few.pods.say(&format!("p{n}"), None, ms(500));
    }
    let waiting = json!({ "waiting": { "reason": "PodInitializing" } });
    let further = with(creating(), &[("/containerStatuses/0/state", waiting)]);
    few.pods.say("p4", says("p4", further), ms(500));
    assert!(few.due(599).is_empty());
    assert_eq!(few.names(600), ["p4"]);
}

#[test]
fn nothing_is_said_after_a_restart() {
    let mut bench = Bench::new();
    bench.pods.say("u", says("p", running()), ms(0));
    assert_eq!(
        bench.pods.next_due(),
        None,
        "not before the cluster was heard"
    );
    bench.pods.hold("u", holds("u", running()), ms(1));
    assert_eq!(bench.pods.next_due(), None);
}

#[test]
fn ends_and_readiness_go_first_and_one_pod_has_one_request() {
    let mut bench = Bench::new();
    for (pod, now) in [
        ("gathers", creating()),
        ("exits", exited()),
        ("ready", running()),
    ] {
        let before = if pod == "exits" {
            with(
                running(),
                &[("/conditions/0", condition("Ready", "True", 2))],
            )
        } else {
            pending()
        };
        bench.pods.hold(pod, holds(pod, before), ms(0));
        bench.pods.say(pod, says(pod, now), ms(0));
    }
    assert_eq!(bench.names(400), ["ready", "exits", "gathers"]);
    bench.pods.say("ready", says("ready", exited()), ms(401));
    assert!(bench.due(1000).is_empty(), "one at a time");
    let job = Job {
        pod: "ready".into(),
        uid: "ready".into(),
        namespace: "n".into(),
        name: "ready".into(),
        step: Step::Patch(json!({ "status": {} })),
    };
    let end = End::Patched(Arc::new(status(running())));
    bench.pods.ended(&job, end, ms(1000));
    assert_eq!(
        bench.names(1000),
        ["ready"],
        "what came meanwhile is one more"
    );
}

#[test]
fn at_most_eight_at_once_and_as_the_rate_allows() {
    let mut bench = Bench::new();
    for n in 0..20 {
        let pod = format!("p{n:02}");
        bench.pods.hold(&pod, holds(&pod, pending()), ms(0));
        bench.pods.say(&pod, says(&pod, running()), ms(0));
    }
    assert_eq!(bench.due(0).len(), 8);
    assert_eq!(bench.pods.next_due(), None);
    let mut slow = Bench::new();
    slow.bucket = Bucket::new(10.0, 2.0);
    for pod in ["a", "b", "c"] {
        slow.pods.hold(pod, holds(pod, pending()), ms(0));
        slow.pods.say(pod, says(pod, running()), ms(0));
    }
    assert_eq!(slow.names(0), ["a", "b"]);
    let next = slow.pods.next_due().unwrap();
    assert!(next > ms(99) && next < ms(102));
    assert_eq!(slow.pods.due(&mut slow.bucket, next).len(), 1);
}

#[test]
fn refusals_hold_back_one_pod_and_an_absent_server_all() {
    let mut bench = Bench::new();
    for pod in ["a", "b", "c"] {
        bench.pods.hold(pod, holds(pod, pending()), ms(0));
        bench.pods.say(pod, says(pod, running()), ms(0));
    }
    let jobs = bench.due(0);
    bench.pods.ended(&jobs[0], End::Refused, ms(0));
    assert!(bench.due(199).is_empty());
    let next = bench.pods.next_due().unwrap();
    assert!(next >= ms(200) && next <= ms(300), "{next:?}");
    bench.pods.ended(&jobs[1], End::Away(ms(1000)), ms(10));
    bench.pods.ended(&jobs[2], End::Away(ms(9000)), ms(20));
    assert!(bench.due(1000).is_empty());
    assert_eq!(bench.pods.next_due(), Some(ms(1010)));
    let probe = bench.due(1010);
    assert_eq!(probe.len(), 1, "one looks whether it is back");
    assert_eq!(bench.pods.next_due(), None);
    bench.patched(&probe[0], pending(), 1020);
    assert_eq!(bench.due(1020).len(), 2, "and then all at once");
}

#[test]
fn somebody_who_writes_over_us_is_answered_but_not_fought() {
    let mut bench = Bench::new();
    bench.pods.hold("u", holds("u", running()), ms(0));
    bench.pods.say("u", says("p", running()), ms(0));
    let drift = with(running(), &[("/podIP", json!("10.9.9.9"))]);
    bench.pods.hold("u", holds("u", drift.clone()), ms(1000));
    // Nothing that anybody waits for: it may gather.
    let jobs = bench.due(1400);
    assert_eq!(jobs.len(), 1);
    bench.patched(&jobs[0], drift.clone(), 1410);
    bench.pods.hold("u", holds("u", running()), ms(1411));
    bench.pods.hold("u", holds("u", drift), ms(1500));
    assert!(bench.due(5000).is_empty());
    assert_eq!(bench.due(11_400).len(), 1);
}

#[test]
fn a_pod_is_removed_when_all_is_told_and_cleaned_up_and_once() {
    let ended = with(
        exited(),
        &[
            ("/phase", json!("Failed")),
            ("/conditions/0", condition("Ready", "False", 9)),
        ],
    );
    let gone = |deletable| Says {
        deletable,
        may_run: false,
        ..says("p", ended.clone()).unwrap()
    };
    let mut bench = Bench::new();
    bench.pods.hold("u", holds("u", exited()), ms(0));
    bench.pods.say("u", Some(gone(true)), ms(0));
    let jobs = bench.due(0);
    let after = bench.patched(&jobs[0], exited(), 5);
    bench.pods.hold(
        "u",
        Some(Holds {
            uid: "u".into(),
            status: after.clone().into(),
        }),
        ms(6),
    );
    let jobs = bench.due(6);
    assert_eq!(jobs[0].step, Step::Delete);
    bench.pods.ended(&jobs[0], End::Deleted, ms(7));
    assert!(bench.due(60_000).is_empty(), "a finalizer may keep it");
    bench.pods.hold("u", None, ms(60_001));
    bench.pods.say("u", None, ms(60_002));
    assert_eq!(bench.pods.next_due(), None);

    // Not while something of it is left, and not by an answer alone that the watch has not told.
    let mut early = Bench::new();
    early.pods.hold(
        "u",
        Some(Holds {
            uid: "u".into(),
            status: after.into(),
        }),
        ms(0),
    );
    early.pods.say("u", Some(gone(false)), ms(0));
    assert!(early.due(60_000).is_empty());
}

#[test]
fn another_pod_of_the_name_is_another_pod() {
    let mut bench = Bench::new();
    bench
        .pods
        .hold("static", holds("mirror-1", pending()), ms(0));
    bench.pods.say("static", says("p", running()), ms(0));
    let jobs = bench.due(0);
    assert_eq!(jobs[0].uid, "mirror-1");
    bench.pods.hold("static", None, ms(1));
    bench.pods.ended(&jobs[0], End::Refused, ms(2));
    assert_eq!(bench.pods.next_due(), None);
    bench
        .pods
        .hold("static", holds("mirror-2", pending()), ms(3));
    let jobs = bench.due(3);
    assert_eq!(
        jobs[0].uid, "mirror-2",
        "at once, whatever befell the one before"
    );
}

#[test]
fn a_server_that_does_not_keep_what_it_is_told_is_told_less_and_less() {
    let mut bench = Bench::new();
    bench.pods.hold("u", holds("u", pending()), ms(0));
    bench.pods.say("u", says("p", running()), ms(0));
    let (mut told, mut gaps) = (0, Vec::new());
    for second in 0..600 {
        for job in bench.due(second * 1000) {
            // An older one that does not know the field.
            let older = with(running(), &[("/observedGeneration", Value::Null)]);
            let end = End::Patched(Arc::new(status(older)));
            bench.pods.ended(&job, end, ms(second * 1000));
            gaps.push(second - told);
            told = second;
        }
    }
    assert!(gaps.len() <= 7, "{gaps:?}");
    // What is new is said at once.
    bench.pods.say("u", says("p", exited()), ms(600_000));
    assert_eq!(bench.due(600_000).len(), 1);
}

#[test]
fn a_pod_is_removed_from_a_server_that_does_not_keep_what_it_is_told() {
    let ended = with(exited(), &[("/phase", json!("Failed"))]);
    let gone = Says {
        deletable: true,
        may_run: false,
        ..says("p", ended.clone()).unwrap()
    };
    let mut bench = Bench::new();
    bench.pods.hold("u", holds("u", exited()), ms(0));
    bench.pods.say("u", Some(gone), ms(0));
    let jobs = bench.due(0);
    assert!(matches!(jobs[0].step, Step::Patch(_)), "its end first");
    let older = with(ended, &[("/observedGeneration", Value::Null)]);
    let end = End::Patched(Arc::new(status(older.clone())));
    bench.pods.ended(&jobs[0], end, ms(5));
    bench.pods.hold("u", holds("u", older), ms(6));
    assert_eq!(
        bench.due(6).first().map(|job| &job.step),
        Some(&Step::Delete)
    );
}
