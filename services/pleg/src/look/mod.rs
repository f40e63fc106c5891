//! Questions to the runtime. None of them changes anything.

mod inspect;
mod last_words;
mod list;
mod poll;

pub(crate) use inspect::{Look, inspect};
pub(crate) use list::list;
pub(crate) use poll::poll;

use std::time::Duration;

use polylet_cri::CriError;

/// Status calls are answered from memory: one that takes longer hangs. Below the deadline of those
/// who wait for a refresh.
const STATUS_LIMIT: Duration = Duration::from_secs(8);
/// Lists of a full node on a busy machine take longer.
const LIST_LIMIT: Duration = Duration::from_secs(30);

fn tell(error: &CriError) -> String {
    format!("{error}: {}", error.said)
}
