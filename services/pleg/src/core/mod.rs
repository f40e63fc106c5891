//! What pleg decides: which pods to look at and when, and what they then are. Pure.

mod desk;
mod ended;
mod health;
mod pace;
mod pod;
mod view;

pub use desk::{Desk, Hint, HintKind, Step};
pub use health::{Health, Polled};
pub use pod::{Fresh, Known, Seen, missing};
pub use view::{ContainerView, Listing, PodView, SandboxView};

use std::time::Duration;

use jiff::Timestamp;

fn later(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_add(by).unwrap_or(Timestamp::MAX)
}
