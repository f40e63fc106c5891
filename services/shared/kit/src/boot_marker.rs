//! Distinguishes a start of the whole agent from a restart of one service.

use std::os::unix::process::parent_id;

use crate::state_file::StateFile;
use crate::{Ctx, report};

/// Version of the file's format.
pub const VERSION: u32 = 1;

/// Whether this is the service's first start under the present supervisor process: node events of
/// an agent start are emitted only then.
pub fn is_first_start(ctx: &Ctx) -> bool {
    let Some(parent) = parent() else {
        return true;
    };
    let file =
        StateFile::<String>::new(ctx.run_dir().join("started.json"), VERSION).without_condition();
    // An unusable file costs one repeated event.
    if file.load().unwrap_or_default().as_ref() == Some(&parent) {
        return false;
    }
    if let Err(error) = file.save(&parent) {
        tracing::debug!(error = report(&error), "failed to record the first start");
    }
    true
}

/// The parent process: its id and its start time in clock ticks since boot.
fn parent() -> Option<String> {
    let pid = parent_id();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name may contain anything, parentheses included.
    let (_, fields) = stat.rsplit_once(')')?;
    let start_time = fields.split_whitespace().nth(19)?;
    Some(format!("{pid}/{start_time}"))
}
