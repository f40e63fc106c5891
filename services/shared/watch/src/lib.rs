//! The watch contract: keyed state that one service owns and others follow.
//!
//! - [`Store`]: the owner's state with revisions, and a bounded log of removals.
//! - [`serve`]: a store as the stream of a server method.
//! - [`Mirror`]: folds the messages of a stream into what the server holds (pure), of which it keeps digests.
//! - [`follow`]: a stream that reconnects for ever and tells only real differences.
//! - [`follow_value`]: the same for streams of one unkeyed value.
//!
//! The rules (and `model.rs`, which tries to break them):
//!
//! 1. A position is an incarnation, fresh at each process start, and a revision. A server that does
//!    not recognise it, or no longer holds the changes since, sends `Reset` and everything.
//! 2. A client builds a snapshot aside and swaps it in at `Synced`. It stores a position only at
//!    `Synced`, which servers send after every batch of changes.
//! 3. A slow watcher gets the latest state of each key, not each step. What a server remembers does
//!    not depend on its watchers.
//! 4. `Synced` is repeated on an idle stream, so that silence means loss.
//! 5. A server sends nothing before its own state is whole.

mod cursor;
mod follow;
mod log;
mod mirror;
#[cfg(test)]
mod model;
#[cfg(test)]
mod over_sockets;
mod serve;
mod store;
mod value;
mod wire;

pub use follow::{Heard, follow, follow_named};
pub use mirror::{Digest, Mirror, Update};
pub use polylet_wire::common::v1::Position;
pub use serve::serve;
pub use store::Store;
pub use value::{Value, ValueWire, follow_value};
pub use wire::{Change, PressureKeyOwned, WatchWire};

use std::time::Duration;

/// How often a server repeats `Synced` on an idle stream.
const IDLE: Duration = Duration::from_secs(15);
/// A client takes a stream that was silent for this long for lost: three idle periods.
const SILENCE: Duration = Duration::from_secs(45);
