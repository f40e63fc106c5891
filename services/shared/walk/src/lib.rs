//! The directory walker of the workspace, for trees that pods write to.
//!
//! Such a tree may hold a million names in one directory, be deeper than any path may be long, change
//! while it is read, and contain mount points whose file system never answers. Therefore a walk
//!
//! - streams: a directory is read in pieces (`getdents`), and no listing is ever held whole. Its memory
//!   does not depend on the number of entries; a level of depth takes a few bytes.
//! - goes by descriptors, from a directory to a name in it: there is no limit to the length of a path,
//!   and at most 32 directories are open at once.
//! - follows no symbolic link, whatever a pod renames meanwhile.
//! - stays on its mount. What is mounted below is skipped without asking its file system for anything
//!   ([`open_entry`]): a dead NFS or FUSE server is not even noticed.
//! - has a [`Budget`] of steps and time. When it is exhausted the walk is paused and can be resumed.
//!
//! # What to use
//!
//! | job | use |
//! | --- | --- |
//! | bytes and inodes of a directory | [`measure`], or a [`Measurement`] as the visitor of a [`Walk`] |
//! | deleting a tree | [`remove_tree`] |
//! | anything else, such as changing owners | [`Walk`] with a [`Visitor`] of your own; [`VisitedEntry::set_owner`] and [`VisitedEntry::set_mode`] act on exactly the visited inode |
//!
//! The file system of the tree itself may hang, too: walk a tree of a network file system only in a
//! child process that can be killed.
//!
//! ```
//! # fn main() -> Result<(), polylet_walk::WalkError> {
//! use std::path::Path;
//! use polylet_walk::{Budget, DiskUsage, Progress, measure, open_root};
//!
//! # let dir = tempfile::tempdir().expect("a directory");
//! let root = open_root(dir.path())?;
//! let mut measured = measure(&root, &mut Budget::unlimited())?;
//! assert_eq!(measured.progress, Progress::Finished);
//! assert_eq!(measured.usage.inodes, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Why not a published crate
//!
//! `walkdir` and `jwalk` go by paths, `ignore` follows them, `openat`-based ones (`cap-std`,
//! `fs_at`) have no walk; none of them knows mounts, and all read what is below one.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod budget;
mod error;
mod measure;
mod open;
mod remove;
mod walk;

pub use budget::{Budget, Progress};
pub use error::{WalkError, WalkOperation};
pub use measure::{DiskUsage, Measured, Measurement, measure};
pub use open::{is_mount_point, open_dir, open_entry, open_root};
pub use remove::remove_tree;
pub use walk::{Descent, VisitedEntry, Visitor, Walk};
