//! The child process for calls that may hang: runs one task and prints the response.

use std::process::ExitCode;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::subprocess::{HelperResponse, HelperTask, SUBCOMMAND};
use crate::volume::{host_path, sub_path};

/// Runs the task in the process's arguments, if it was started for one.
pub fn run_from_args() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != SUBCOMMAND {
        return None;
    }
    let text = arguments.next().unwrap_or_default();
    let task = serde_json::from_slice(text.as_encoded_bytes());
    let response = match task {
        Ok(task) => run(&task),
        Err(_) => HelperResponse::Failed("invalid task".to_owned()),
    };
    // Plain strings: they can always be encoded.
    print!("{}", serde_json::to_string(&response).unwrap_or_default());
    Some(ExitCode::SUCCESS)
}

fn run(task: &HelperTask) -> HelperResponse {
    match task {
        HelperTask::Unmount { path } => {
            match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW) {
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => HelperResponse::Done,
                Err(errno) => {
                    HelperResponse::Failed(format!("unmounting {}: {errno}", path.display()))
                }
            }
        }
        HelperTask::HostPath { path, check } => match host_path::check(path, *check) {
            Ok(()) => HelperResponse::Done,
            Err(error) => HelperResponse::Failed(polylet_kit::report(&error)),
        },
        HelperTask::SubPaths(sub_paths) => match sub_path::bind_all(sub_paths) {
            Ok(()) => HelperResponse::Done,
            Err(error) => HelperResponse::SubPath {
                error: polylet_kit::report(&error),
                stage: error.stage,
                volume: error.volume,
            },
        },
    }
}
