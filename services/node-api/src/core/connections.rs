//! Which connections a port may have, and how long each may wait for its client, so that nobody holds the
//! places of others.
//!
//! A connection is trusted once a request on it was allowed. All others compete for a few places, of which
//! each address may hold a part. A new connection always gets one: the oldest of the address that holds
//! the most is closed for it, so that a client with a request wins over any number of silent ones. An address
//! with a trusted connection has places of its own: behind it may be an API server, and many clients at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Identifies a connection of a port; later ones have greater numbers.
pub(crate) type ConnectionId = u64;

/// Most connections of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// Of all addresses without a trusted connection, and of each of them.
    pub(crate) untrusted: usize,
    pub(crate) untrusted_per_address: usize,
    /// Of all addresses that have a trusted connection besides.
    pub(crate) untrusted_of_known: usize,
    pub(crate) trusted: usize,
}

/// How long a connection may wait for its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionTimeouts {
    /// From the handshake to the end of the first request's headers.
    pub(crate) first_request: Duration,
    /// From the end of a response to the end of the next request's headers.
    pub(crate) idle: Duration,
    /// While the client takes nothing of any response.
    pub(crate) unread: Duration,
    /// The same of a trusted connection, on which many clients may depend: a proxy's.
    pub(crate) unread_trusted: Duration,
}

/// What a connection does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    /// There was no request yet.
    Silent,
    /// All requests have been answered.
    Idle,
    /// A response is being made or sent.
    Busy,
    /// All responses wait for the client to read.
    Unread,
}

/// When a connection is closed unless its client acts before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionExpiry {
    pub(crate) at: Duration,
    /// The client is not waiting for anything.
    pub(crate) idle: bool,
}

#[derive(Debug)]
struct ConnectionEntry<A> {
    address: A,
    trusted: bool,
    requested: bool,
    /// Requests in progress, and those of them whose response waits for the client.
    active: usize,
    unread: usize,
    /// The last progress.
    since: Duration,
}

impl<A> ConnectionEntry<A> {
    fn phase(&self) -> ConnectionPhase {
        match (self.active, self.unread) {
            (0, _) if self.requested => ConnectionPhase::Idle,
            (0, _) => ConnectionPhase::Silent,
            (active, unread) if unread >= active => ConnectionPhase::Unread,
            _ => ConnectionPhase::Busy,
        }
    }
}

/// The connections of one port. Times are those of a monotonic clock.
#[derive(Debug)]
pub(crate) struct ConnectionTable<A> {
    limits: ConnectionLimits,
    timeouts: ConnectionTimeouts,
    next_id: ConnectionId,
    entries: BTreeMap<ConnectionId, ConnectionEntry<A>>,
}

impl<A: Ord + Copy> ConnectionTable<A> {
    pub(crate) fn new(limits: ConnectionLimits, timeouts: ConnectionTimeouts) -> Self {
        Self {
            limits,
            timeouts,
            next_id: 0,
            entries: BTreeMap::new(),
        }
    }

    /// Adds a connection. The second one is to be closed in its favour.
    pub(crate) fn admit(
        &mut self,
        address: A,
        now: Duration,
    ) -> (ConnectionId, Option<ConnectionId>) {
        let closed = self.displaced_by(address);
        if let Some(closed) = closed {
            self.entries.remove(&closed);
        }
        let id = self.next_id;
        self.next_id += 1;
        let entry = ConnectionEntry {
            address,
            trusted: false,
            requested: false,
            active: 0,
            unread: 0,
            since: now,
        };
        self.entries.insert(id, entry);
        (id, closed)
    }

    /// The connection that a new one of an address displaces, if there is no place for it.
    fn displaced_by(&self, address: A) -> Option<ConnectionId> {
        let trusted = self.entries.values().filter(|entry| entry.trusted);
        let known: BTreeSet<A> = trusted.map(|entry| entry.address).collect();
        let mut counts: BTreeMap<A, usize> = BTreeMap::new();
        for entry in self.entries.values().filter(|entry| !entry.trusted) {
            *counts.entry(entry.address).or_default() += 1;
        }
        let is_known = known.contains(&address);
        let limits = &self.limits;
        let (per_address, in_group) = match is_known {
            true => (limits.untrusted_of_known, limits.untrusted_of_known),
            false => (limits.untrusted_per_address, limits.untrusted),
        };
        let all: usize = counts.values().sum();
        let own = counts.get(&address).copied().unwrap_or_default();
        let of_group = |it: &(&A, &usize)| known.contains(it.0) == is_known;
        let group = counts.iter().filter(of_group);
        let most = |(_, count): &(&A, &usize)| **count;
        let from = if own >= per_address {
            address
        } else if group.clone().map(|(_, count)| count).sum::<usize>() >= in_group {
            *group.max_by_key(most)?.0
        } else if all >= limits.untrusted + limits.untrusted_of_known {
            // Addresses were known when their connections came.
            *counts.iter().max_by_key(most)?.0
        } else {
            return None;
        };
        // One that is being served goes last.
        let candidates = self.entries.iter();
        candidates
            .filter(|(_, entry)| !entry.trusted && entry.address == from)
            .min_by_key(|(id, entry)| (entry.phase() == ConnectionPhase::Busy, **id))
            .map(|(id, _)| *id)
    }

    /// A request on it was allowed. Returns the trusted connection that is to be closed for it, if there
    /// are too many: one that only waits for its client. Without such a one it stays untrusted.
    pub(crate) fn trust(&mut self, id: ConnectionId) -> Option<ConnectionId> {
        let trusted = self.entries.values().filter(|entry| entry.trusted).count();
        let closed = if trusted >= self.limits.trusted {
            let waiting = self.entries.iter().filter(|(_, entry)| {
                let waits = matches!(
                    entry.phase(),
                    ConnectionPhase::Idle | ConnectionPhase::Unread
                );
                entry.trusted && waits
            });
            let oldest = waiting.min_by_key(|(_, entry)| entry.since);
            Some(oldest.map(|(id, _)| *id)?)
        } else {
            None
        };
        let entry = self.entries.get_mut(&id).filter(|entry| !entry.trusted)?;
        entry.trusted = true;
        if let Some(closed) = closed {
            self.entries.remove(&closed);
        }
        closed
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) {
        self.entries.remove(&id);
    }

    /// A request with all of its headers was received.
    pub(crate) fn start_request(&mut self, id: ConnectionId, now: Duration) {
        self.progress(id, now, |entry| {
            entry.requested = true;
            entry.active += 1;
        });
    }

    /// A response was sent, or given up; `unread` as it was last set.
    pub(crate) fn end_request(&mut self, id: ConnectionId, unread: bool, now: Duration) {
        self.progress(id, now, |entry| {
            entry.active = entry.active.saturating_sub(1);
            entry.unread = entry.unread.saturating_sub(usize::from(unread));
        });
    }

    /// Whether a response waits for its client: one more, or one less.
    pub(crate) fn set_unread(&mut self, id: ConnectionId, unread: bool, now: Duration) {
        self.progress(id, now, |entry| {
            entry.unread = if unread {
                entry.unread + 1
            } else {
                entry.unread.saturating_sub(1)
            };
        });
    }

    fn progress(
        &mut self,
        id: ConnectionId,
        now: Duration,
        change: impl FnOnce(&mut ConnectionEntry<A>),
    ) {
        if let Some(entry) = self.entries.get_mut(&id) {
            change(entry);
            entry.since = now;
        }
    }

    /// `None` while the connection is served, and for one that was removed.
    pub(crate) fn expiry(&self, id: ConnectionId) -> Option<ConnectionExpiry> {
        let entry = self.entries.get(&id)?;
        let timeouts = &self.timeouts;
        let timeout = match entry.phase() {
            ConnectionPhase::Busy => return None,
            ConnectionPhase::Silent => timeouts.first_request,
            ConnectionPhase::Idle => timeouts.idle,
            ConnectionPhase::Unread if entry.trusted => timeouts.unread_trusted,
            ConnectionPhase::Unread => timeouts.unread,
        };
        Some(ConnectionExpiry {
            at: entry.since.saturating_add(timeout),
            idle: entry.phase() == ConnectionPhase::Idle,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        untrusted: 6,
        untrusted_per_address: 4,
        untrusted_of_known: 8,
        trusted: 2,
    };
    const TIMEOUTS: ConnectionTimeouts = ConnectionTimeouts {
        first_request: Duration::from_secs(10),
        idle: Duration::from_secs(90),
        unread: Duration::from_secs(60),
        unread_trusted: Duration::from_secs(600),
    };

    fn table() -> ConnectionTable<char> {
        ConnectionTable::new(LIMITS, TIMEOUTS)
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_address_displaces_its_own_oldest_connection() {
        let mut table = table();
        for id in 0..4 {
            assert_eq!(table.admit('a', at(0)), (id, None));
        }
        assert_eq!(table.admit('a', at(1)), (4, Some(0)));
        // One that is served goes last.
        table.start_request(1, at(1));
        assert_eq!(table.admit('a', at(1)), (5, Some(2)));
        assert_eq!(table.admit('b', at(1)), (6, None));
    }

    #[test]
    fn the_address_with_most_connections_gives_way() {
        let mut table = table();
        for address in ['a', 'b', 'b', 'b', 'b', 'c'] {
            table.admit(address, at(0));
        }
        assert_eq!(table.admit('d', at(0)), (6, Some(1)));
        assert_eq!(table.admit('a', at(0)), (7, Some(2)));
    }

    #[test]
    fn an_address_with_a_trusted_connection_has_places_of_its_own() {
        let mut table = table();
        let (trusted, _) = table.admit('k', at(0));
        assert_eq!(table.trust(trusted), None);
        for address in ['a', 'a', 'a', 'a', 'b', 'b'] {
            assert_eq!(table.admit(address, at(1)).1, None);
        }
        for _ in 0..8 {
            assert_eq!(table.admit('k', at(1)).1, None);
        }
        assert_eq!(table.admit('k', at(2)).1, Some(7), "its own");
        assert_eq!(table.admit('b', at(2)).1, Some(1), "not one of k");
        // Without that connection it is like all others.
        table.remove(trusted);
        assert_eq!(table.admit('b', at(3)).1, Some(8));
    }

    #[test]
    fn trusted_connections_are_not_displaced_by_new_ones() {
        let mut table = table();
        let (first, _) = table.admit('a', at(0));
        assert_eq!(table.trust(first), None);
        for _ in 0..20 {
            let (_, closed) = table.admit('a', at(1));
            assert_ne!(closed, Some(first));
        }
        // Trusted ones give way to trusted ones, while they wait for their client.
        let (second, _) = table.admit('b', at(2));
        table.start_request(second, at(2));
        assert_eq!(table.trust(second), None);
        let (third, _) = table.admit('b', at(3));
        table.start_request(first, at(3));
        assert_eq!(table.trust(third), None, "stays untrusted");
        table.end_request(first, false, at(4));
        assert_eq!(table.trust(third), Some(first));
        assert_eq!(table.trust(third), None, "trusted already");
    }

    #[test]
    fn only_the_client_is_waited_for() {
        let mut table = table();
        let (id, _) = table.admit('a', at(5));
        let expiry = |at, idle| Some(ConnectionExpiry { at, idle });
        assert_eq!(table.expiry(id), expiry(at(15), false));
        table.start_request(id, at(6));
        table.start_request(id, at(6));
        assert_eq!(table.expiry(id), None);
        table.set_unread(id, true, at(7));
        assert_eq!(table.expiry(id), None, "the other response is made");
        table.end_request(id, false, at(8));
        assert_eq!(table.expiry(id), expiry(at(68), false));
        table.trust(id);
        assert_eq!(table.expiry(id), expiry(at(608), false));
        table.set_unread(id, false, at(9));
        assert_eq!(table.expiry(id), None);
        table.end_request(id, false, at(10));
        assert_eq!(table.expiry(id), expiry(at(100), true));
        table.remove(id);
        assert_eq!(table.expiry(id), None);
    }

    proptest! {
        #[test]
        fn limits_hold_and_every_new_connection_is_admitted(
            steps in prop::collection::vec((0u8..4, 0u8..3, 0u64..40), 0..200),
        ) {
            let mut table: ConnectionTable<u8> = ConnectionTable::new(LIMITS, TIMEOUTS);
            for (number, (step, address, id)) in steps.into_iter().enumerate() {
                let now = Duration::from_millis(number as u64);
                match step {
                    0 | 1 => {
                        let (id, _) = table.admit(address, now);
                        prop_assert!(table.entries.contains_key(&id));
                    }
                    2 => drop(table.trust(id)),
                    _ => table.start_request(id, now),
                }
                let untrusted = table.entries.values().filter(|entry| !entry.trusted);
                let of = |address| untrusted.clone().filter(|entry| entry.address == address).count();
                prop_assert!((0..3).all(|address| of(address) <= LIMITS.untrusted_of_known));
                prop_assert!(untrusted.count() <= LIMITS.untrusted + LIMITS.untrusted_of_known);
                prop_assert!(table.entries.values().filter(|entry| entry.trusted).count() <= LIMITS.trusted);
            }
        }
    }
}
