//! A service with tasks for child processes that misbehave in every way.

mod misbehaving_task;

use std::process::ExitCode;

use polylet_kit::subprocess::SubprocessEntry;
use polylet_kit::{Service, ServiceDescriptor};

use crate::misbehaving_task::MisbehavingTask;

static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "pleg",
    version: "0.0.1",
    about: "an example",
    serves: &[],
    calls: &[],
    state_files: &[],
    subprocesses: &[SubprocessEntry::new::<MisbehavingTask>()],
};

fn main() -> ExitCode {
    polylet_kit::main(&DESCRIPTOR, |_| async { Ok(Service::new()) })
}
