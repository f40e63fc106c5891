//! The watch contract: keyed state that one service owns and others follow.
//!
//! - [`Store`]: the owner's state with revisions, and a bounded log of removals.
//! - [`serve`]: a store as the stream of a server method; [`serve_key`]: one key of it.
//! - [`Replica`]: applies the messages of a stream to a copy of the server's keys (pure). Of the
//!   values it stores digests only.
//! - [`follow`]: a stream that reconnects without end and yields only real differences.
//! - [`follow_value`]: the same for streams of a single value.
//! - [`AppendLog`] and [`follow_log`]: messages that are added once and never change, such as notices.
//!
//! The rules (`model.rs` tries to break them):
//!
//! 1. A position is an incarnation, new at each process start, and a revision. A server that does
//!    not recognise it, or no longer has the changes since, sends `Reset` and everything.
//! 2. A client stages a snapshot and swaps it in at `Synced`. It stores a position only at
//!    `Synced`, which servers send after every batch of changes.
//! 3. A slow watcher gets the latest state of each key, not each change. The memory of a server
//!    does not depend on its watchers.
//! 4. `Synced` is repeated on an idle stream, so that silence means loss.
//! 5. A server sends nothing before its own state has synced.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod append_log;
mod byte_blocks;
mod change;
mod connection;
mod cursor;
mod follow;
mod follow_log;
mod log;
#[cfg(test)]
mod model;
#[cfg(test)]
mod over_sockets;
mod pulse;
mod replica;
mod serve;
mod store;
mod store_item;
mod value;
mod wire;

pub use append_log::AppendLog;
pub use byte_blocks::ByteBlocks;
pub use change::{Change, Digest};
pub use follow::{StreamObserver, follow, follow_named};
pub use follow_log::follow_log;
pub use polylet_wire::common::v1::Position;
pub use pulse::{PULSE, until_pulse};
pub use replica::{ReceivedValue, Replica, Update};
pub use serve::{serve, serve_key};
pub use store::Store;
pub use store_item::{Encoded, StoreItem};
pub use value::{Value, ValueWire, follow_value};
pub use wire::{PressureItemKey, ProbeItemKey, WatchWire};

use std::time::Duration;

/// A client treats a stream as lost after this silence: five pulses, at every second of which a server
/// repeats `Synced` on an idle stream.
const SILENCE: Duration = Duration::from_secs(5 * PULSE.as_secs());
