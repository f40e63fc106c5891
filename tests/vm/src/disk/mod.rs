//! The machine's disk: an NBD server that keeps unflushed writes in memory, as the cache of a drive
//! does, and loses a random part of them when the power is cut.
//!
//! Killing QEMU alone would lose nothing: what its guest wrote is in the page cache of the host by
//! then. `cache=unsafe` ignores flushes and QEMU's `blklogwrites` has to be replayed by another
//! program, whereas a server of our own decides exactly what survives: every write before a completed
//! flush, and any sector of any later write in any of its versions.

/// The NBD protocol, as far as QEMU's client needs it.
mod nbd;
/// The server and its backing file.
mod server;
/// Unflushed writes.
mod write_cache;

pub use server::VolatileDisk;
pub use write_cache::{CacheLoss, WriteCache};

/// Bytes of a sector, the unit that a disk writes completely or not at all.
pub const SECTOR: usize = 512;
