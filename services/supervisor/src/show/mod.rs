//! Output of the commands.

pub(crate) mod config;
mod follow_upgrade;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod logs;
pub(crate) mod pods;
pub(crate) mod profile;
mod starts_after;
pub(crate) mod status;
pub(crate) mod trace;
pub(crate) mod upgrade;
mod upgrade_steps;

/// Prints a JSON document.
pub(crate) fn json(value: &serde_json::Value) {
    print(&format!("{value:#}\n"));
}

/// Writes to standard output; a closed pipe is no error.
pub(crate) fn print(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
