//! A model of many clients and one server that restarts, loses streams and drops old removals.
//!
//! It runs the real log, cursor and replica under random interleavings, and shows that each of three
//! shortcuts violates the contract.

use std::collections::{BTreeMap, VecDeque};
use std::hash::RandomState;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::cursor::{Cursor, Queued};
use crate::log::ChangeLog;
use crate::{Change, Digest, Position, ReceivedValue, Replica, StoreItem, Update};

/// Keys below this are in every synced state: no client may see one removed.
const PERMANENT_KEYS: u8 = 3;
const KEYS: u8 = 9;
const CLIENTS: usize = 5;
/// What the last client watches; the others watch all keys.
const ONLY_KEY: u8 = 5;
/// Few, so that clients often resume too late.
const MAX_REMOVALS: usize = 2;

/// A simplification of the protocol that must violate the contract.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shortcut {
    NoIncarnations,
    PositionsInsideSnapshots,
    SnapshotsInPlace,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Item {
    key: u8,
    value: u16,
    /// Set before the server synced: no client may see it.
    provisional: bool,
}

impl Digest for Item {
    fn digest(&self, _: &RandomState) -> u64 {
        u64::from(self.key) << 32 | u64::from(self.value) << 1 | u64::from(self.provisional)
    }
}

impl StoreItem for Item {
    type Kept = Item;

    fn keep(self) -> Item {
        self
    }

    fn restore(kept: Item) -> Item {
        kept
    }
}

type State = BTreeMap<u8, Item>;

#[derive(Clone, Debug)]
enum ModelStep {
    Set(u8, u16),
    Delete(u8),
    Connect(usize),
    Drop(usize),
    /// The server writes a batch to the client's connection.
    Send(usize),
    /// The client reads up to this many messages.
    Read(usize, usize),
    Restart(Vec<u8>),
    MarkSynced,
}

fn operation() -> impl Strategy<Value = ModelStep> {
    let client = 0..CLIENTS;
    prop_oneof![
        6 => (0..KEYS, 0u16..4).prop_map(|(key, value)| ModelStep::Set(key, value)),
        4 => (PERMANENT_KEYS..KEYS).prop_map(ModelStep::Delete),
        3 => client.clone().prop_map(ModelStep::Connect),
        2 => client.clone().prop_map(ModelStep::Drop),
        6 => client.clone().prop_map(ModelStep::Send),
        6 => (client, 1usize..6).prop_map(|(client, count)| ModelStep::Read(client, count)),
        1 => prop::collection::vec(0..KEYS, 0..4).prop_map(ModelStep::Restart),
        2 => Just(ModelStep::MarkSynced),
    ]
}

struct Connection {
    cursor: Cursor<u8>,
    wire: VecDeque<Queued<u8, Item>>,
}

struct Client {
    /// The only key that it watches.
    only: Option<u8>,
    replica: Replica<u8, Item>,
    connection: Option<Connection>,
    /// The state of a consumer of the updates.
    seen: State,
}

struct Simulation {
    shortcut: Option<Shortcut>,
    /// The real state; the server reads it back after a restart.
    truth: State,
    log: ChangeLog<u8, Item>,
    incarnations: u32,
    clients: Vec<Client>,
    /// The server's state at each published position.
    published: BTreeMap<(String, u64), State>,
}

impl Simulation {
    fn new(shortcut: Option<Shortcut>) -> Self {
        let clients = (0..CLIENTS).map(|client| {
            let mut replica = Replica::new();
            replica.apply_in_place = shortcut == Some(Shortcut::SnapshotsInPlace);
            Client {
                only: (client == CLIENTS - 1).then_some(ONLY_KEY),
                replica,
                connection: None,
                seen: State::new(),
            }
        });
        let item = |key| Item {
            key,
            value: 0,
            provisional: false,
        };
        let truth = (0..PERMANENT_KEYS).map(|key| (key, item(key))).collect();
        let clients = clients.collect();
        let mut simulation = Simulation {
            shortcut,
            truth,
            log: ChangeLog::new("", 0),
            incarnations: 0,
            clients,
            published: BTreeMap::new(),
        };
        simulation.restart(&[]);
        simulation
    }

    fn restart(&mut self, provisional: &[u8]) {
        self.incarnations += 1;
        self.log = ChangeLog::new(&format!("incarnation {}", self.incarnations), MAX_REMOVALS);
        self.log.ignore_incarnations = self.shortcut == Some(Shortcut::NoIncarnations);
        for key in provisional {
            self.log.upsert(
                *key,
                Item {
                    key: *key,
                    value: 0,
                    provisional: true,
                },
            );
        }
        for client in 0..CLIENTS {
            self.disconnect(client);
        }
    }

    fn disconnect(&mut self, client: usize) {
        let client = &mut self.clients[client];
        client.connection = None;
        client.replica.disconnect(String::new);
    }

    fn apply(&mut self, act: ModelStep) -> Result<(), TestCaseError> {
        match act {
            ModelStep::Set(key, value) => {
                let item = Item {
                    key,
                    value,
                    provisional: false,
                };
                self.truth.insert(key, item);
                if self.log.has_synced() {
                    self.log.upsert(key, item);
                }
            }
            ModelStep::Delete(key) => {
                self.truth.remove(&key);
                if self.log.has_synced() {
                    self.log.remove(&key);
                }
            }
            ModelStep::Connect(client) => {
                let client = &mut self.clients[client];
                if client.connection.is_none() {
                    let position = client.replica.position().cloned();
                    let cursor = match client.only {
                        Some(key) => Cursor::for_key(key, position),
                        None => Cursor::new(position),
                    };
                    client.connection = Some(Connection {
                        cursor,
                        wire: VecDeque::new(),
                    });
                }
            }
            ModelStep::Drop(client) => self.disconnect(client),
            ModelStep::Send(client) => self.send(client),
            ModelStep::Read(client, count) => {
                for _ in 0..count {
                    self.read(client)?;
                }
            }
            ModelStep::Restart(provisional) => self.restart(&provisional),
            ModelStep::MarkSynced => {
                if !self.log.has_synced() {
                    self.log.replace(self.truth.clone());
                    self.log.mark_synced();
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, client: usize) {
        let Some(connection) = &mut self.clients[client].connection else {
            return;
        };
        // A batch is taken only after the last one was written, as with slow watchers.
        if connection.wire.is_empty() {
            connection.cursor.refill(&self.log, &mut connection.wire);
            let position = self.log.position();
            self.published.insert(
                (position.incarnation, position.revision),
                self.log.snapshot(),
            );
        }
    }

    fn read(&mut self, client: usize) -> Result<(), TestCaseError> {
        let incarnation = self.log.position().incarnation;
        let Client {
            only,
            replica,
            connection,
            seen,
        } = &mut self.clients[client];
        let Some(message) = connection
            .as_mut()
            .and_then(|connection| connection.wire.pop_front())
        else {
            return Ok(());
        };
        let revision = match &message {
            Queued::Change(revision, _) => Some(*revision),
            _ => None,
        };
        let change = message.into_change();
        let synced = match &change {
            Change::Synced(position) => Some((position.incarnation.clone(), position.revision)),
            _ => None,
        };
        let mut updates = Vec::new();
        replica.apply(change, |item| item.key, &mut updates);
        if let (Some(Shortcut::PositionsInsideSnapshots), Some(revision)) =
            (self.shortcut, revision)
        {
            replica.store_position(Position {
                incarnation,
                revision,
            });
        }
        for update in updates {
            consume(seen, update.map(ReceivedValue::into_value))?;
        }
        prop_assert!(
            replica.is_equal_to(seen),
            "a consumer has the state of its replica"
        );
        if let Some(position) = synced {
            let published = self.published.get(&position);
            let published = published.map(|state| watched(state, *only));
            prop_assert_eq!(
                Some(&*seen),
                published.as_ref(),
                "a synced client equals its server"
            );
        }
        Ok(())
    }

    /// Completes all connections: every client ends equal to the server.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        self.apply(ModelStep::MarkSynced)?;
        for client in 0..CLIENTS {
            self.apply(ModelStep::Connect(client))?;
            // First what is on the wire, then the rest.
            for _ in 0..2 {
                self.apply(ModelStep::Read(client, 100))?;
                self.apply(ModelStep::Send(client))?;
            }
            self.apply(ModelStep::Read(client, 100))?;
            prop_assert_eq!(
                &self.clients[client].seen,
                &watched(&self.truth, self.clients[client].only),
                "a client ends equal to the server"
            );
        }
        Ok(())
    }
}

/// The part of a state that a client watches.
fn watched(state: &State, only: Option<u8>) -> State {
    let items = state
        .iter()
        .filter(|(key, _)| only.is_none_or(|only| only == **key));
    items.map(|(key, item)| (*key, *item)).collect()
}

fn consume(seen: &mut State, update: Update<u8, Item>) -> Result<(), TestCaseError> {
    match update {
        Update::Upsert(key, item) => {
            prop_assert!(!item.provisional, "received before the server synced");
            prop_assert_ne!(
                seen.insert(key, item),
                Some(item),
                "an upsert is a real difference"
            );
        }
        Update::Remove(key) => {
            prop_assert!(key >= PERMANENT_KEYS, "a permanent key was removed");
            prop_assert!(
                seen.remove(&key).is_some(),
                "a removal is a real difference"
            );
        }
        Update::Synced | Update::Stale(_) => {}
    }
    Ok(())
}

fn run(shortcut: Option<Shortcut>, operations: Vec<ModelStep>) -> Result<(), TestCaseError> {
    let mut simulation = Simulation::new(shortcut);
    for operation in operations {
        simulation.apply(operation)?;
    }
    simulation.settle()
}

/// Number of 400 random runs that violate the contract.
fn count_violations(shortcut: Option<Shortcut>) -> usize {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let operations = prop::collection::vec(operation(), 0..200);
    (0..400)
        .filter(|_| {
            let acts = operations
                .new_tree(&mut runner)
                .expect("the strategy refuses nothing")
                .current();
            run(shortcut, acts).is_err()
        })
        .count()
}

proptest! {
    #![proptest_config(Config { cases: 2000, ..Config::default() })]

    #[test]
    fn every_client_ends_equal_to_the_server(acts in prop::collection::vec(operation(), 0..200)) {
        run(None, acts)?;
    }
}

#[test]
fn the_contract_holds_in_the_runs_that_break_the_shortcuts() {
    assert_eq!(count_violations(None), 0);
}

#[test]
fn without_incarnations_clients_end_wrong() {
    assert!(count_violations(Some(Shortcut::NoIncarnations)) > 0);
}

#[test]
fn positions_stored_inside_a_snapshot_lose_items() {
    assert!(count_violations(Some(Shortcut::PositionsInsideSnapshots)) > 0);
}

#[test]
fn snapshots_applied_in_place_show_states_that_never_existed() {
    assert!(count_violations(Some(Shortcut::SnapshotsInPlace)) > 0);
}
