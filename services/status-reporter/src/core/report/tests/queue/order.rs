//! The order of requests, whatever happens in between.

use polylet_model::PodUid;
use proptest::prelude::*;

use super::*;

const PODS: usize = 12;

#[derive(Clone, Debug)]
enum QueueStep {
    /// The number of the pod and of its new status.
    Desired(usize, usize),
    Api(usize, usize),
    Remove(usize),
    /// Sends what is due.
    Send,
    /// A request in flight is completed, with one of the results.
    Complete(usize, usize),
    /// So many milliseconds.
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<QueueStep>> {
    let step = prop_oneof![
        5 => (0..PODS, 0..4usize).prop_map(|(pod, of)| QueueStep::Desired(pod, of)),
        2 => (0..PODS, 0..4usize).prop_map(|(pod, of)| QueueStep::Api(pod, of)),
        1 => (0..PODS).prop_map(QueueStep::Remove),
        4 => Just(QueueStep::Send),
        4 => (0..8usize, 0..4usize).prop_map(|(request, result)| QueueStep::Complete(request, result)),
        3 => (0..700u64).prop_map(QueueStep::Wait),
    ];
    prop::collection::vec(step, 0..120)
}

fn name(pod: usize) -> String {
    format!("p{pod:02}")
}

/// One of the stages of a pod, from its start to the exit of a container.
fn stage(number: usize) -> Value {
    [pending, creating, running, exited][number]()
}

fn result(number: usize) -> PatchResult {
    match number {
        0 | 1 => PatchResult::Patched(status(running()).into()),
        2 => PatchResult::Rejected,
        _ => PatchResult::Unavailable(ms(100)),
    }
}

/// Performs steps, and checks the requests that are sent.
struct QueueDriver {
    fixture: Fixture,
    in_flight: Vec<StatusRequest>,
    is_rate_limited: bool,
    now: u64,
}

impl QueueDriver {
    fn new(per_second: f64) -> Self {
        let mut fixture = Fixture::new();
        fixture.rate_limit = TokenBucket::new(per_second, 2.0, Duration::ZERO);
        let queue = &mut fixture.queue;
        for pod in (0..PODS).map(name) {
            queue.set_api_status(&pod.as_str().into(), api(&pod, pending()), ms(0));
        }
        QueueDriver {
            fixture,
            in_flight: Vec::new(),
            is_rate_limited: per_second > 0.0,
            now: 0,
        }
    }

    fn handle(&mut self, step: QueueStep) {
        let (queue, now) = (&mut self.fixture.queue, ms(self.now));
        let uid = |pod| PodUid::from(name(pod));
        match step {
            QueueStep::Desired(pod, of) => {
                queue.set_desired(&uid(pod), desired(&name(pod), stage(of)), now);
            }
            QueueStep::Api(pod, of) => {
                queue.set_api_status(&uid(pod), api(&name(pod), stage(of)), now);
            }
            QueueStep::Remove(pod) => queue.set_desired(&uid(pod), None, now),
            QueueStep::Send => self.send(),
            QueueStep::Complete(request, of) if request < self.in_flight.len() => {
                let request = self.in_flight.remove(request);
                queue.on_completed(&request, result(of), now);
            }
            QueueStep::Complete(..) => {}
            QueueStep::Wait(time) => self.now += time,
        }
    }

    /// Requests are those that come first of all that are due.
    fn send(&mut self) {
        let now = ms(self.now);
        let due = self.fixture.queue.all_due(now);
        let requests = self.fixture.due(self.now);
        let left = self.fixture.queue.all_due(now);
        let position = |pod: &PodUid| due.iter().position(|of| of == pod).unwrap();
        let sent: Vec<_> = requests.iter().map(|it| position(&it.pod)).collect();
        assert!(sent.is_sorted(), "{sent:?}");
        if let Some(last) = sent.last() {
            assert!(left.iter().all(|pod| position(pod) > *last));
        }
        self.in_flight.extend(requests);
        let queue = &self.fixture.queue;
        let waits = self.is_rate_limited || queue.is_unavailable(now);
        assert!(left.is_empty() || !self.in_flight.is_empty() || waits);
        assert!(queue.next_due().is_none_or(|next| next > now));
    }

    /// Requests in flight and those that are new make the node busy, and no others.
    fn check_busy(&self) {
        let queue = &self.fixture.queue;
        let (counted, known) = queue.active_counts();
        assert_eq!(counted, known);
        let busy = !self.in_flight.is_empty() || counted > 0;
        assert_eq!(queue.is_busy(), busy);
        let end = Duration::from_secs(1 << 32);
        assert!(counted <= queue.all_due(end).len());
    }
}

proptest! {
    #[test]
    fn requests_are_sent_by_priority(steps in steps(), per_second in prop_oneof![Just(0.0), Just(15.0)]) {
        let mut driver = QueueDriver::new(per_second);
        for step in steps.into_iter().chain([QueueStep::Send]) {
            driver.handle(step);
            driver.check_busy();
        }
    }
}

#[test]
fn requests_that_wait_for_the_rate_limit_keep_their_order() {
    let mut fixture = Fixture::new();
    fixture.rate_limit = TokenBucket::new(10.0, 1.0, Duration::ZERO);
    let queue = &mut fixture.queue;
    for pod in ["a", "b", "c", "d", "e"] {
        queue.set_api_status(&pod.into(), api(pod, pending()), ms(0));
    }
    queue.set_desired(&"e".into(), desired("e", creating()), ms(0));
    queue.set_desired(&"d".into(), desired("d", running()), ms(0));
    queue.set_desired(&"c".into(), desired("c", running()), ms(0));
    assert_eq!(fixture.names(0), ["c"]);
    // Due later, and then of a higher priority than before.
    let queue = &mut fixture.queue;
    queue.set_desired(&"a".into(), desired("a", creating()), ms(10));
    queue.set_desired(&"b".into(), desired("b", running()), ms(20));
    assert!(fixture.names(20).is_empty());
    fixture
        .queue
        .set_desired(&"a".into(), desired("a", running()), ms(30));
    for (at, next) in [(110, "d"), (220, "b"), (330, "a")] {
        assert_eq!(fixture.names(at), [next]);
        assert!(fixture.names(at + 10).is_empty());
    }
    // One that is not needed any more.
    fixture.queue.set_desired(&"e".into(), None, ms(440));
    assert!(fixture.names(60_000).is_empty());
    assert_eq!(fixture.queue.next_due(), None);
}
