//! A model of many clients and one server that restarts, loses streams and forgets removals.
//!
//! It runs the real log, cursor and mirror under random interleavings, and shows that each of three
//! shortcuts breaks what holds without it.

use std::collections::{BTreeMap, VecDeque};
use std::hash::RandomState;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::cursor::{Cursor, Queued};
use crate::log::Log;
use crate::{Change, Digest, Mirror, Position, Update};

/// Keys below this are in every whole state: nobody may ever see one removed.
const ETERNAL: u8 = 3;
const KEYS: u8 = 9;
const CLIENTS: usize = 4;
/// Removals remembered: few, so that clients often come too late.
const REMEMBERED: usize = 2;

/// A shortcut that must be shown not to work.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    NoIncarnations,
    PositionsInsideSnapshots,
    SnapshotsInPlace,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Item {
    key: u8,
    value: u16,
    /// Put in while the server was not whole: nobody may ever see it.
    provisional: bool,
}

impl Digest for Item {
    fn digest(&self, _: &RandomState) -> u64 {
        u64::from(self.key) << 32 | u64::from(self.value) << 1 | u64::from(self.provisional)
    }
}

type State = BTreeMap<u8, Item>;

#[derive(Clone, Debug)]
enum Act {
    Set(u8, u16),
    Delete(u8),
    Connect(usize),
    Drop(usize),
    /// The server writes a batch to the client's connection.
    Send(usize),
    /// The client reads up to so many messages.
    Read(usize, usize),
    Restart(Vec<u8>),
    BecomeWhole,
}

fn act() -> impl Strategy<Value = Act> {
    let client = 0..CLIENTS;
    prop_oneof![
        6 => (0..KEYS, 0u16..4).prop_map(|(key, value)| Act::Set(key, value)),
        4 => (ETERNAL..KEYS).prop_map(Act::Delete),
        3 => client.clone().prop_map(Act::Connect),
        2 => client.clone().prop_map(Act::Drop),
        6 => client.clone().prop_map(Act::Send),
        6 => (client, 1usize..6).prop_map(|(client, count)| Act::Read(client, count)),
        1 => prop::collection::vec(0..KEYS, 0..4).prop_map(Act::Restart),
        2 => Just(Act::BecomeWhole),
    ]
}

struct Connection {
    cursor: Cursor,
    wire: VecDeque<Queued<u8, Item>>,
}

struct Client {
    mirror: Mirror<u8, Item>,
    connection: Option<Connection>,
    /// What a consumer of the updates holds.
    seen: State,
}

struct World {
    wrong: Option<Wrong>,
    /// What is really there; the server reads it back after a restart.
    truth: State,
    log: Log<u8, Item>,
    lives: u32,
    clients: Vec<Client>,
    /// The server's state at each position it ever told.
    told: BTreeMap<(String, u64), State>,
}

impl World {
    fn new(wrong: Option<Wrong>) -> Self {
        let clients = (0..CLIENTS).map(|_| {
            let mut mirror = Mirror::new();
            mirror.apply_in_place = wrong == Some(Wrong::SnapshotsInPlace);
            Client {
                mirror,
                connection: None,
                seen: State::new(),
            }
        });
        let truth = (0..ETERNAL)
            .map(|key| {
                (
                    key,
                    Item {
                        key,
                        value: 0,
                        provisional: false,
                    },
                )
            })
            .collect();
        let clients = clients.collect();
        let mut world = World {
            wrong,
            truth,
            log: Log::new("", 0),
            lives: 0,
            clients,
            told: BTreeMap::new(),
        };
        world.restart(&[]);
        world
    }

    fn restart(&mut self, provisional: &[u8]) {
        self.lives += 1;
        self.log = Log::new(&format!("life {}", self.lives), REMEMBERED);
        self.log.ignore_incarnations = self.wrong == Some(Wrong::NoIncarnations);
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
        client.mirror.lost(String::new);
    }

    fn act(&mut self, act: Act) -> Result<(), TestCaseError> {
        match act {
            Act::Set(key, value) => {
                let item = Item {
                    key,
                    value,
                    provisional: false,
                };
                self.truth.insert(key, item);
                if self.log.is_whole() {
                    self.log.upsert(key, item);
                }
            }
            Act::Delete(key) => {
                self.truth.remove(&key);
                if self.log.is_whole() {
                    self.log.remove(&key);
                }
            }
            Act::Connect(client) => {
                let client = &mut self.clients[client];
                if client.connection.is_none() {
                    let cursor = Cursor::new(client.mirror.position().cloned());
                    client.connection = Some(Connection {
                        cursor,
                        wire: VecDeque::new(),
                    });
                }
            }
            Act::Drop(client) => self.disconnect(client),
            Act::Send(client) => self.send(client),
            Act::Read(client, count) => {
                for _ in 0..count {
                    self.read(client)?;
                }
            }
            Act::Restart(provisional) => self.restart(&provisional),
            Act::BecomeWhole => {
                if !self.log.is_whole() {
                    self.log.replace(self.truth.clone());
                    self.log.mark_whole();
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, client: usize) {
        let Some(connection) = &mut self.clients[client].connection else {
            return;
        };
        // A batch is taken only when the last one was written: that is what slow watchers do.
        if connection.wire.is_empty() {
            connection.cursor.refill(&self.log, &mut connection.wire);
            let position = self.log.position();
            self.told.insert(
                (position.incarnation, position.revision),
                self.log.snapshot(),
            );
        }
    }

    fn read(&mut self, client: usize) -> Result<(), TestCaseError> {
        let incarnation = self.log.position().incarnation;
        let Client {
            mirror,
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
            Queued::Step(revision, _) => Some(*revision),
            _ => None,
        };
        let change = message.into_change();
        let synced = match &change {
            Change::Synced(position) => Some((position.incarnation.clone(), position.revision)),
            _ => None,
        };
        let mut updates = Vec::new();
        mirror.apply(change, |item| item.key, &mut updates);
        if let (Some(Wrong::PositionsInsideSnapshots), Some(revision)) = (self.wrong, revision) {
            mirror.store_position(Position {
                incarnation,
                revision,
            });
        }
        for update in updates {
            consume(seen, update)?;
        }
        prop_assert!(mirror.holds(seen), "a consumer holds what its mirror holds");
        if let Some(position) = synced {
            prop_assert_eq!(
                Some(&*seen),
                self.told.get(&position),
                "a synced client equals its server"
            );
        }
        Ok(())
    }

    /// Everything settles: every client ends equal to the server.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        self.act(Act::BecomeWhole)?;
        for client in 0..CLIENTS {
            self.act(Act::Connect(client))?;
            // What is on the wire still, and then the rest.
            for _ in 0..2 {
                self.act(Act::Read(client, 100))?;
                self.act(Act::Send(client))?;
            }
            self.act(Act::Read(client, 100))?;
            prop_assert_eq!(
                &self.clients[client].seen,
                &self.truth,
                "a client ends equal to the server"
            );
        }
        Ok(())
    }
}

fn consume(seen: &mut State, update: Update<u8, Item>) -> Result<(), TestCaseError> {
    match update {
        Update::Upsert(key, item) => {
            prop_assert!(!item.provisional, "seen before the server was whole");
            prop_assert_ne!(
                seen.insert(key, item),
                Some(item),
                "an upsert is a real difference"
            );
        }
        Update::Remove(key) => {
            prop_assert!(
                key >= ETERNAL,
                "a key that was always there was told to be gone"
            );
            prop_assert!(
                seen.remove(&key).is_some(),
                "a removal is a real difference"
            );
        }
        Update::Synced | Update::Stale(_) => {}
    }
    Ok(())
}

fn run(wrong: Option<Wrong>, acts: Vec<Act>) -> Result<(), TestCaseError> {
    let mut world = World::new(wrong);
    for act in acts {
        world.act(act)?;
    }
    world.settle()
}

/// How many of 400 random worlds break.
fn broken(wrong: Option<Wrong>) -> usize {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let worlds = prop::collection::vec(act(), 0..200);
    (0..400)
        .filter(|_| {
            let acts = worlds
                .new_tree(&mut runner)
                .expect("the strategy refuses nothing")
                .current();
            run(wrong, acts).is_err()
        })
        .count()
}

proptest! {
    #![proptest_config(Config { cases: 2000, ..Config::default() })]

    #[test]
    fn every_client_ends_equal_to_the_server(acts in prop::collection::vec(act(), 0..200)) {
        run(None, acts)?;
    }
}

#[test]
fn the_contract_holds_in_the_worlds_that_break_the_shortcuts() {
    assert_eq!(broken(None), 0);
}

#[test]
fn without_incarnations_clients_end_wrong() {
    assert!(broken(Some(Wrong::NoIncarnations)) > 0);
}

#[test]
fn positions_stored_inside_a_snapshot_lose_items() {
    assert!(broken(Some(Wrong::PositionsInsideSnapshots)) > 0);
}

#[test]
fn snapshots_applied_in_place_show_what_never_was() {
    assert!(broken(Some(Wrong::SnapshotsInPlace)) > 0);
}
