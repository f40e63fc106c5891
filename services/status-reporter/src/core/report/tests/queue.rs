//! When patches are sent, and in what order.

mod deletions;
mod failures;
mod order;

use std::time::Duration;

use polylet_schedule::TokenBucket;
use serde_json::json;

use super::*;
use crate::core::report::desired::{ApiAction, ApiStatus, DesiredStatus};
use crate::core::report::queue::PatchQueue;
use crate::core::report::request::{PatchResult, StatusRequest};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn desired(name: &str, of: Value) -> Option<DesiredStatus> {
    Some(DesiredStatus {
        namespace: "n".to_owned(),
        name: name.to_owned(),
        status: status(of).into(),
        phase: rules(true),
        deleting: false,
        deletable: false,
    })
}

fn api(uid: &str, of: Value) -> Option<ApiStatus> {
    Some(ApiStatus {
        uid: uid.into(),
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

struct Fixture {
    queue: PatchQueue,
    rate_limit: TokenBucket<Duration>,
}

impl Fixture {
    fn new() -> Self {
        Fixture {
            queue: PatchQueue::default(),
            rate_limit: TokenBucket::new(0.0, 0.0, Duration::ZERO),
        }
    }

    fn due(&mut self, now: u64) -> Vec<StatusRequest> {
        self.queue.take_due(&mut self.rate_limit, ms(now))
    }

    fn names(&mut self, now: u64) -> Vec<String> {
        self.due(now)
            .into_iter()
            .map(|request| request.pod.into())
            .collect()
    }

    /// The API server accepts a patch; its status then.
    fn patched(&mut self, request: &StatusRequest, current: Value, now: u64) -> PodStatus {
        let ApiAction::Patch(body) = &request.action else {
            panic!("{request:?}")
        };
        let after = applied(&status(current), body);
        self.queue
            .on_completed(request, PatchResult::Patched(after.clone().into()), ms(now));
        after
    }
}

#[test]
fn start_takes_at_most_two_patches() {
    let mut fixture = Fixture::new();
    fixture
        .queue
        .set_api_status(&"u".into(), api("u", pending()), ms(0));
    fixture
        .queue
        .set_desired(&"u".into(), desired("p", creating()), ms(0));
    assert!(fixture.due(10).is_empty(), "a quick start is one patch");
    assert_eq!(fixture.queue.next_due(), Some(ms(400)));
    fixture
        .queue
        .set_desired(&"u".into(), desired("p", running()), ms(145));
    let requests = fixture.due(145);
    assert_eq!(requests.len(), 1, "readiness is patched at once");
    let after = fixture.patched(&requests[0], pending(), 150);
    assert!(fixture.due(2000).is_empty());
    // The watch delivers our own patch or an older status: nothing is repeated.
    let mut late = Fixture::new();
    late.queue
        .set_api_status(&"u".into(), api("u", pending()), ms(0));
    late.queue
        .set_desired(&"u".into(), desired("p", creating()), ms(0));
    let requests = late.due(400);
    late.patched(&requests[0], pending(), 405);
    let older = with(pending(), &[("/conditions/-", condition("x", "True", 1))]);
    late.queue
        .set_api_status(&"u".into(), api("u", older), ms(406));
    assert!(late.due(406).is_empty());
    late.queue
        .set_desired(&"u".into(), desired("p", running()), ms(600));
    assert_eq!(late.due(600).len(), 1);
    fixture.queue.set_api_status(
        &"u".into(),
        Some(ApiStatus {
            uid: "u".into(),
            status: after.into(),
        }),
        ms(151),
    );
    assert!(fixture.due(60_000).is_empty());
    assert_eq!(fixture.queue.next_due(), None);
    assert!(fixture.queue.is_acknowledged("u"));
}

#[test]
fn slow_start_has_one_intermediate_patch() {
    let mut fixture = Fixture::new();
    fixture
        .queue
        .set_api_status(&"u".into(), api("u", pending()), ms(0));
    fixture
        .queue
        .set_desired(&"u".into(), desired("p", creating()), ms(0));
    let requests = fixture.due(400);
    let status = fixture.patched(&requests[0], pending(), 405);
    let (uid, status) = ("u".into(), status.into());
    fixture
        .queue
        .set_api_status(&"u".into(), Some(ApiStatus { uid, status }), ms(406));
    let waiting = json!({ "waiting": { "reason": "PodInitializing" } });
    let further = with(creating(), &[("/containerStatuses/0/state", waiting)]);
    fixture
        .queue
        .set_desired(&"u".into(), desired("p", further), ms(500));
    assert!(fixture.due(1500).is_empty(), "another intermediate action");
    assert_eq!(fixture.queue.next_due(), Some(ms(2400)));
    fixture
        .queue
        .set_desired(&"u".into(), desired("p", running()), ms(1600));
    assert_eq!(fixture.due(1600).len(), 1, "readiness is patched at once");
}

#[test]
fn batch_delay_grows_with_concurrent_starts() {
    let mut fixture = Fixture::new();
    for n in 0..200 {
        let pod = format!("p{n}");
        fixture
            .queue
            .set_api_status(&pod.as_str().into(), api(&pod, pending()), ms(0));
        fixture
            .queue
            .set_desired(&pod.as_str().into(), desired(&pod, creating()), ms(0));
    }
    // The first pod was alone when it came, and waits for the others all the same.
    assert!(fixture.due(400).is_empty());
    assert!(fixture.due(19_999).is_empty());
    assert_eq!(fixture.due(20_000).len(), 8, "eight at once");
    let mut few = Fixture::new();
    for n in 0..5 {
        let pod = format!("p{n}");
        few.queue
            .set_api_status(&pod.as_str().into(), api(&pod, pending()), ms(0));
        few.queue
            .set_desired(&pod.as_str().into(), desired(&pod, creating()), ms(0));
    }
    assert!(few.due(1199).is_empty());
    // The delay of the last one is not shortened when the others are done.
    for n in 0..4 {
        few.queue
            .set_desired(&format!("p{n}").into(), None, ms(500));
    }
    let waiting = json!({ "waiting": { "reason": "PodInitializing" } });
    let further = with(creating(), &[("/containerStatuses/0/state", waiting)]);
    few.queue
        .set_desired(&"p4".into(), desired("p4", further), ms(500));
    assert!(few.due(1199).is_empty());
    assert_eq!(few.names(1200), ["p4"]);
}

#[test]
fn restart_patches_nothing() {
    let mut fixture = Fixture::new();
    fixture
        .queue
        .set_desired(&"u".into(), desired("p", running()), ms(0));
    assert_eq!(
        fixture.queue.next_due(),
        None,
        "not before the API status is known"
    );
    fixture
        .queue
        .set_api_status(&"u".into(), api("u", running()), ms(1));
    assert_eq!(fixture.queue.next_due(), None);
}

#[test]
fn priorities_order_requests_and_a_pod_has_one_in_flight() {
    let mut fixture = Fixture::new();
    for (pod, now) in [
        ("batched", creating()),
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
        fixture
            .queue
            .set_api_status(&pod.into(), api(pod, before), ms(0));
        fixture
            .queue
            .set_desired(&pod.into(), desired(pod, now), ms(0));
    }
    assert_eq!(fixture.names(400), ["ready", "exits", "batched"]);
    fixture
        .queue
        .set_desired(&"ready".into(), desired("ready", exited()), ms(401));
    assert!(fixture.due(1000).is_empty(), "one at a time");
    let request = StatusRequest {
        pod: "ready".into(),
        uid: "ready".into(),
        namespace: "n".into(),
        name: "ready".into(),
        action: ApiAction::Patch(json!({ "status": {} })),
    };
    let result = PatchResult::Patched(status(running()).into());
    fixture.queue.on_completed(&request, result, ms(1000));
    assert_eq!(
        fixture.names(1000),
        ["ready"],
        "changes in the meantime are one more patch"
    );
}

#[test]
fn requests_are_limited_in_number_and_rate() {
    let mut fixture = Fixture::new();
    for n in 0..20 {
        let pod = format!("p{n:02}");
        fixture
            .queue
            .set_api_status(&pod.as_str().into(), api(&pod, pending()), ms(0));
        fixture
            .queue
            .set_desired(&pod.as_str().into(), desired(&pod, running()), ms(0));
    }
    assert_eq!(fixture.due(0).len(), 8);
    assert_eq!(fixture.queue.next_due(), None);
    let mut slow = Fixture::new();
    slow.rate_limit = TokenBucket::new(10.0, 2.0, Duration::ZERO);
    for pod in ["a", "b", "c"] {
        slow.queue
            .set_api_status(&pod.into(), api(pod, pending()), ms(0));
        slow.queue
            .set_desired(&pod.into(), desired(pod, running()), ms(0));
    }
    assert_eq!(slow.names(0), ["a", "b"]);
    let next = slow.queue.next_due().unwrap();
    assert!(next > ms(99) && next < ms(102));
    assert_eq!(slow.queue.take_due(&mut slow.rate_limit, next).len(), 1);
}

#[test]
fn a_status_is_in_sync_after_the_time_since_its_first_change() {
    let mut fixture = Fixture::new();
    let queue = &mut fixture.queue;
    queue.set_api_status(&"u".into(), api("u", pending()), ms(0));
    queue.set_desired(&"u".into(), desired("p", creating()), ms(100));
    queue.set_desired(&"u".into(), desired("p", running()), ms(250));
    let requests = fixture.due(250);
    let failed = PatchResult::Unavailable(ms(50));
    let result = fixture.queue.on_completed(&requests[0], failed, ms(260));
    assert_eq!(result, None, "a failed patch is none");
    let requests = fixture.due(400);
    let after = PatchResult::Patched(status(running()).into());
    let result = fixture.queue.on_completed(&requests[0], after, ms(420));
    assert_eq!(result, Some(ms(320)));
}
