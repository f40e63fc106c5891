//! Read-only calls to the container runtime.

mod health_check;
mod inspect;
mod list;
mod termination_message;

pub(crate) use health_check::check_health;
pub(crate) use inspect::{InspectResult, inspect};
pub(crate) use list::list;
pub(crate) use termination_message::{TerminationFileTask, TerminationMessageReader};

use std::time::Duration;

/// Status calls are answered from memory: one that takes longer hangs. Shorter than the deadline of
/// callers that wait for a refresh.
const STATUS_TIMEOUT: Duration = Duration::from_secs(8);
/// Lists of a full node on a busy machine take longer.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
