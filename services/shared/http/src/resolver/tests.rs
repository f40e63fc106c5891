use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

const SOON: Duration = Duration::from_secs(20);

fn address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// A system's resolver that answers names that begin with "good", and no other until it is released.
/// Counts the calls by name.
struct BlackHole {
    resolver: Resolver,
    calls: Arc<Mutex<BTreeMap<String, usize>>>,
    release: Sender<()>,
}

fn black_hole() -> BlackHole {
    let calls = Arc::new(Mutex::new(BTreeMap::new()));
    let seen = Arc::clone(&calls);
    let (release, released): (Sender<()>, Receiver<()>) = channel();
    let released = Arc::new(Mutex::new(released));
    let system = move |host: &str| {
        *seen.lock().unwrap().entry(host.to_owned()).or_insert(0) += 1;
        if host.starts_with("good") {
            return Ok(vec![address()]);
        }
        // Ends when the sender is dropped.
        let _ = released.lock().unwrap().recv();
        Err(io::Error::other("Temporary failure in name resolution"))
    };
    BlackHole {
        resolver: Resolver::with_system(system),
        calls,
        release,
    }
}

impl BlackHole {
    fn stuck_calls(&self) -> usize {
        let calls = self.calls.lock().unwrap();
        let stuck = calls.iter().filter(|(host, _)| !host.starts_with("good"));
        stuck.map(|(_, count)| count).sum()
    }

    /// Asks for a name and gives up, as a probe with a short time-out does.
    async fn give_up(&self, requester: &str, host: &str) {
        let lookup = self.resolver.resolve(requester, host, 80);
        let result = tokio::time::timeout(Duration::from_millis(20), lookup).await;
        assert!(result.is_err(), "{host}: {result:?}");
    }

    async fn wait_for_stuck_calls(&self, count: usize) {
        let stuck = async {
            while self.stuck_calls() < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, stuck)
            .await
            .expect("too few calls");
    }

    async fn answers(&self, requester: &str, host: &str) {
        let lookup = self.resolver.resolve(requester, host, 80);
        let result = tokio::time::timeout(SOON, lookup).await;
        let addresses = result.expect("no answer in time").unwrap();
        assert_eq!(addresses, [SocketAddr::from((Ipv4Addr::LOCALHOST, 80))]);
    }
}

#[tokio::test]
async fn the_age_of_a_lookup_is_known_while_it_lasts() {
    let hole = black_hole();
    hole.answers("pod", "good").await;
    hole.give_up("pod", "bad").await;
    hole.wait_for_stuck_calls(1).await;
    assert!(hole.resolver.lookup_age("bad").is_some());
    assert_eq!(hole.resolver.lookup_age("good"), None);
}

#[tokio::test]
async fn addresses_need_no_lookup() {
    let hole = black_hole();
    for (host, expected) in [("10.0.0.1", "10.0.0.1:80"), ("fd00::1", "[fd00::1]:80")] {
        let addresses = hole.resolver.resolve("pod", host, 80).await.unwrap();
        assert_eq!(addresses, [expected.parse().unwrap()]);
    }
    assert!(hole.calls.lock().unwrap().is_empty());
    drop(hole.release);
}

#[tokio::test]
async fn a_stuck_name_is_looked_up_once() {
    let hole = black_hole();
    for _ in 0..20 {
        hole.give_up("pod", "stuck").await;
    }
    hole.wait_for_stuck_calls(1).await;
    assert_eq!(hole.stuck_calls(), 1);
    assert_eq!(hole.resolver.shared.state().threads, 1);
    drop(hole.release);
}

/// One pod with many names holds two threads.
#[tokio::test]
async fn stuck_names_of_one_pod_do_not_delay_another() {
    let hole = black_hole();
    let names: Vec<String> = (0..MAX_WAITING).map(|n| format!("stuck{n}")).collect();
    let lookups: Vec<_> = names
        .iter()
        .map(|name| hole.resolver.enqueue("hostile", name).unwrap())
        .collect();
    hole.wait_for_stuck_calls(LIMITS.per_owner).await;
    hole.answers("neighbour", "good").await;
    assert_eq!(hole.stuck_calls(), LIMITS.per_owner);
    drop((lookups, hole.release));
}

/// A name that waits for the turn of one pod is looked up in the turn of another that needs it, once.
#[tokio::test]
async fn a_name_that_waits_behind_stuck_ones_does_not_delay_another_pod() {
    let hole = black_hole();
    let names = ["stuck1", "stuck2", "good"];
    let lookups = names.map(|name| hole.resolver.enqueue("hostile", name).unwrap());
    hole.wait_for_stuck_calls(LIMITS.per_owner).await;
    hole.answers("neighbour", "good").await;
    let [.., shared] = lookups;
    assert!(shared.await.unwrap().is_ok());
    assert_eq!(hole.calls.lock().unwrap()["good"], 1);
    drop(hole.release);
}

/// Many pods hold at most the threads of slow ones, once each has been found to be slow.
#[tokio::test]
async fn stuck_names_of_many_slow_pods_do_not_delay_another() {
    let hole = black_hole();
    let pods: Vec<String> = (0..100).map(|n| format!("pod{n}")).collect();
    for pod in &pods {
        let mut state = hole.resolver.shared.state();
        state.queue.set_slow(&pod.as_str().into(), true);
    }
    let lookups: Vec<_> = pods
        .iter()
        .map(|pod| hole.resolver.enqueue(pod, pod).unwrap())
        .collect();
    hole.wait_for_stuck_calls(LIMITS.slow).await;
    hole.answers("neighbour", "good").await;
    assert_eq!(hole.stuck_calls(), LIMITS.slow);
    drop((lookups, hole.release));
}

#[tokio::test]
async fn requester_of_a_stuck_name_is_slow_when_it_gives_up() {
    let hole = black_hole();
    let lookup = hole.resolver.resolve("pod", "stuck", 80);
    let limit = SLOW_LOOKUP + Duration::from_millis(100);
    assert!(tokio::time::timeout(limit, lookup).await.is_err());
    for name in ["stuck2", "good"] {
        let mut state = hole.resolver.shared.state();
        state.queue.push("pod".into(), name.into());
        let start = state.queue.pop().unwrap();
        assert_eq!((&*start.item, start.place.is_slow()), (name, true));
        state.queue.finish(start.place);
    }
    drop(hole.release);
}

#[tokio::test]
async fn waiting_lookups_are_bounded_and_dropped_when_nobody_waits() {
    let hole = black_hole();
    let names: Vec<String> = (0..100).map(|n| format!("stuck{n}")).collect();
    let lookups: Vec<_> = names
        .iter()
        .map(|name| hole.resolver.enqueue("hostile", name))
        .collect();
    assert!(matches!(lookups.last(), Some(Err(LookupError::TooMany))));
    hole.answers("neighbour", "good").await;
    hole.wait_for_stuck_calls(LIMITS.per_owner).await;
    drop((lookups, hole.release));
    // The stuck ones end now; the others are dropped without a call.
    let resolver = hole.resolver;
    let empty = async {
        while !resolver.shared.state().lookups.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, empty)
        .await
        .expect("lookups are left");
    let calls: usize = hole.calls.lock().unwrap().values().sum();
    // Those of "good" and of the stuck ones.
    assert_eq!(calls, 1 + LIMITS.per_owner);
}

#[tokio::test]
async fn errors_are_those_of_the_system() {
    let system = |_: &str| Err(io::Error::other("Name or service not known"));
    let resolver = Resolver::with_system(system);
    let error = resolver.resolve("pod", "gone", 80).await.unwrap_err();
    assert_eq!(error.to_string(), "Name or service not known");
}
