//! Names to addresses, in threads of its own.
//!
//! The system's resolver (`getaddrinfo`) blocks, for half a minute when a server does not answer, and
//! cannot be cancelled. So it runs in a bounded number of threads that nothing else uses; each
//! requester has few of them, those whose names take long share a part of them, and one name is looked
//! up once for all that wait for it. The thread of a lookup that nobody waits for any more counts until
//! it ends: a stuck one is not multiplied by retries.
//!
//! The system's resolver, and not one of a crate: it alone follows the node's `nsswitch.conf`.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polylet_schedule::{FairLimits, FairQueue, FairStart};
use tokio::sync::oneshot;

/// The most threads. Their stacks take memory only where they are used.
const LIMITS: FairLimits = FairLimits {
    total: 32,
    per_owner: 2,
    slow: 16,
};

/// The most names of one requester that wait.
const MAX_WAITING: usize = 64;

/// The most names that wait or are looked up.
const MAX_LOOKUPS: usize = 32 << 10;

/// A requester whose lookup takes longer is slow until one of its lookups takes less.
const SLOW_LOOKUP: Duration = Duration::from_secs(1);

/// The longest time that a caller waits.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a thread without work remains.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// `getaddrinfo` needs little; the resolver's plugins (nss) may need more.
const STACK_BYTES: usize = 512 << 10;

/// Why a name has no address.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LookupError {
    /// The system's resolver failed.
    #[error("{0}")]
    Failed(#[source] Arc<io::Error>),
    /// No response in time, or no thread was free.
    #[error("i/o timeout")]
    Timeout,
    /// Too many names wait already.
    #[error("too many lookups of names wait for a response")]
    TooMany,
}

type Addresses = Result<Vec<SocketAddr>, LookupError>;
type SystemResolver = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Looks up names. Cheap to clone; clones share the threads.
#[derive(Clone)]
pub(crate) struct Resolver {
    shared: Arc<ResolverThreads>,
}

struct ResolverThreads {
    system: Box<SystemResolver>,
    state: Mutex<State>,
    work: Condvar,
}

struct State {
    /// Names by requester.
    queue: FairQueue<Arc<str>, Arc<str>>,
    lookups: BTreeMap<Arc<str>, PendingLookup>,
    threads: usize,
    idle_threads: usize,
}

/// A name that waits for a thread or is looked up.
#[derive(Default)]
struct PendingLookup {
    /// The requesters in whose turns it may start.
    owners: Vec<Arc<str>>,
    waiters: Vec<oneshot::Sender<Addresses>>,
    /// When, and the requester that is charged with it.
    started: Option<(Instant, Arc<str>)>,
}

impl Resolver {
    /// Uses the system's resolver.
    pub(crate) fn new() -> Self {
        Self::with_system(|host| Ok((host, 0).to_socket_addrs()?.collect()))
    }

    pub(crate) fn with_system(
        system: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        let state = State {
            queue: FairQueue::new(LIMITS),
            lookups: BTreeMap::new(),
            threads: 0,
            idle_threads: 0,
        };
        let shared = ResolverThreads {
            system: Box::new(system),
            state: Mutex::new(state),
            work: Condvar::new(),
        };
        Resolver {
            shared: Arc::new(shared),
        }
    }

    /// The addresses of a host, with the port. `requester` is charged with the lookup.
    pub(crate) async fn resolve(&self, requester: &str, host: &str, port: u16) -> Addresses {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let result = self.enqueue(requester, host)?;
        let waiting = LookupCaller {
            shared: &self.shared,
            host,
        };
        let result = tokio::time::timeout(LOOKUP_TIMEOUT, result).await;
        drop(waiting);
        // A sender is dropped with a lookup that nobody seemed to wait for.
        let result = result.unwrap_or(Ok(Err(LookupError::Timeout)));
        let mut addresses = result.unwrap_or(Err(LookupError::Timeout))?;
        for address in &mut addresses {
            address.set_port(port);
        }
        Ok(addresses)
    }

    /// How long a name has been looked up, if it is.
    pub(crate) fn lookup_age(&self, host: &str) -> Option<Duration> {
        let state = self.shared.state();
        let (began, _) = state.lookups.get(host)?.started.as_ref()?;
        Some(began.elapsed())
    }

    fn enqueue(
        &self,
        requester: &str,
        host: &str,
    ) -> Result<oneshot::Receiver<Addresses>, LookupError> {
        let (sender, receiver) = oneshot::channel();
        let mut guard = self.shared.state();
        let state = &mut *guard;
        let (host, owner): (Arc<str>, Arc<str>) = (host.into(), requester.into());
        if let Some(lookup) = state.lookups.get_mut(&host) {
            lookup.waiters.retain(|waiter| !waiter.is_closed());
            if lookup.started.is_some() || lookup.owners.contains(&owner) {
                lookup.waiters.push(sender);
                return Ok(receiver);
            }
        }
        if state.lookups.len() >= MAX_LOOKUPS || state.queue.waiting(&owner) >= MAX_WAITING {
            return Err(LookupError::TooMany);
        }
        // Another requester's turn may be late: the name gets one of this requester, too.
        let lookup = state.lookups.entry(Arc::clone(&host)).or_default();
        lookup.owners.push(Arc::clone(&owner));
        lookup.waiters.push(sender);
        state.queue.push(owner, Arc::clone(&host));
        match ResolverThreads::wake_thread(&self.shared, state) {
            Err(error) if state.threads == 0 => {
                state.lookups.remove(&host);
                Err(LookupError::Failed(Arc::new(error)))
            }
            // One of the present threads takes it.
            _ => Ok(receiver),
        }
    }
}

/// A caller that waits for a lookup. One that gives up a slow one marks its owner as slow, long before
/// the lookup ends.
struct LookupCaller<'a> {
    shared: &'a ResolverThreads,
    host: &'a str,
}

impl Drop for LookupCaller<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        let state = &mut *state;
        if let Some(lookup) = state.lookups.get(self.host)
            && let Some((at, owner)) = &lookup.started
            && at.elapsed() >= SLOW_LOOKUP
        {
            state.queue.set_slow(owner, true);
        }
    }
}

impl ResolverThreads {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread take the next name, if one can be taken.
    fn wake_thread(shared: &Arc<Self>, state: &mut State) -> io::Result<()> {
        if !state.queue.can_pop() {
            return Ok(());
        }
        if state.idle_threads > 0 || state.threads >= LIMITS.total {
            shared.work.notify_one();
            return Ok(());
        }
        let own = Arc::clone(shared);
        let thread = thread::Builder::new().name("resolver".to_owned());
        thread
            .stack_size(STACK_BYTES)
            .spawn(move || ResolverThreads::run(&own))?;
        state.threads += 1;
        Ok(())
    }

    /// The life of a thread.
    fn run(shared: &Arc<Self>) {
        let mut state = shared.state();
        let mut is_expired = false;
        loop {
            if let Some(start) = state.queue.pop() {
                is_expired = false;
                // A name that waits is not left to this thread alone. Without another one, it is next.
                let _ = ResolverThreads::wake_thread(shared, &mut state);
                state = shared.look_up(state, start);
            } else if is_expired {
                state.threads -= 1;
                return;
            } else {
                state.idle_threads += 1;
                let waited = shared.work.wait_timeout(state, IDLE_TIMEOUT);
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = woken;
                state.idle_threads -= 1;
                is_expired = timeout.timed_out();
            }
        }
    }

    fn look_up<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        start: FairStart<Arc<str>, Arc<str>>,
    ) -> MutexGuard<'a, State> {
        let (place, host) = (start.place, start.item);
        let lookup = state.lookups.get_mut(&host);
        let Some(lookup) = lookup.filter(|lookup| lookup.started.is_none()) else {
            // It started in the turn of another requester.
            state.queue.finish(place);
            return state;
        };
        if lookup.waiters.iter().all(oneshot::Sender::is_closed) {
            state.lookups.remove(&host);
            state.queue.finish(place);
            return state;
        }
        let began = Instant::now();
        lookup.started = Some((began, Arc::clone(place.owner())));
        drop(state);
        let addresses = (self.system)(&host);
        let addresses = addresses.map_err(|error| LookupError::Failed(Arc::new(error)));
        let mut state = self.state();
        let is_slow = began.elapsed() >= SLOW_LOOKUP;
        state.queue.set_slow(place.owner(), is_slow);
        state.queue.finish(place);
        let lookup = state.lookups.remove(&host);
        for waiter in lookup.into_iter().flat_map(|lookup| lookup.waiters) {
            // A caller may have given up.
            let _ = waiter.send(addresses.clone());
        }
        state
    }
}

#[cfg(test)]
mod tests;
