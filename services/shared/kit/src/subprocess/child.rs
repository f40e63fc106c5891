//! The child's side.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::process::ExitCode;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::protocol::{self, ChildMessage, MAX_SIZE, SUBCOMMAND};
use super::task::{SubprocessTask, TaskProgress};

/// A task that a service's children can run.
#[derive(Clone, Copy)]
pub struct SubprocessEntry {
    name: &'static str,
    run: fn() -> ExitCode,
}

impl SubprocessEntry {
    /// The entry of a task.
    pub const fn new<T: SubprocessTask>() -> Self {
        Self {
            name: T::NAME,
            run: run::<T>,
        }
    }
}

impl fmt::Debug for SubprocessEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Runs a task if the arguments ask for one.
pub(crate) fn run_from_args(
    entries: &[SubprocessEntry],
    arguments: impl IntoIterator<Item = OsString>,
) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    if arguments.next()? != SUBCOMMAND {
        return None;
    }
    let name = arguments.next().unwrap_or_default();
    let parent = arguments.next().unwrap_or_default();
    let Some(entry) = entries.iter().find(|entry| name == entry.name) else {
        return Some(ExitCode::FAILURE);
    };
    // The child must not outlive its parent, whose next instance may work at the same place.
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    let is_child = getppid().is_some_and(|id| parent == *id.as_raw_nonzero().to_string());
    if bound.is_err() || !is_child {
        return Some(ExitCode::FAILURE);
    }
    Some((entry.run)())
}

fn run<T: SubprocessTask>() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        let message = ChildMessage::<(), ()>::Panicked(panic.to_string());
        // Without a parent nobody reads it.
        let _ = protocol::write(io::stdout(), &message);
    }));
    let mut request = Vec::new();
    let read = io::stdin()
        .take(MAX_SIZE as u64)
        .read_to_end(&mut request)
        .map(|_| serde_json::from_slice::<T>(&request));
    let Ok(Ok(task)) = read else {
        return ExitCode::FAILURE;
    };
    drop(request);
    let output = task.run(&mut TaskProgress::to_parent(io::stdout()));
    let done = ChildMessage::<(), T::Output>::Done(output);
    match protocol::write(io::stdout(), &done) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
