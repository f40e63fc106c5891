//! Whether Polylet itself was started, or only one service of it.

use crate::{Ctx, kept, report};

const VERSION: u32 = 1;

/// True once for each life of the supervisor: what people are told of a start is told once.
pub fn for_the_first_time(ctx: &Ctx) -> bool {
    let path = ctx.run_dir().join("started.json");
    let Some(now) = parent() else {
        return true;
    };
    // Not knowing costs one event too many.
    let before = kept::load::<String>(&path, VERSION).unwrap_or_default();
    if before.as_ref() == Some(&now) {
        return false;
    }
    if let Err(error) = kept::save(&path, VERSION, &now) {
        tracing::debug!("a start is not noted: {}", report(&error));
    }
    true
}

/// The process that started this one, and when it began itself.
fn parent() -> Option<String> {
    let pid = std::os::unix::process::parent_id();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name may hold anything, brackets included.
    let (_, fields) = stat.rsplit_once(')')?;
    let began = fields.split_whitespace().nth(19)?;
    Some(format!("{pid}/{began}"))
}
