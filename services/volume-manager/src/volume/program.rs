//! Programs of the node, run by child processes of the service; messages are upstream's.

use std::process::{Command, Output, Stdio};

/// Runs a program to its end. The child process that waits for it has a deadline.
pub(super) fn run(mut command: Command) -> Result<Output, String> {
    command.output().map_err(|error| {
        let program = command.get_program().to_string_lossy();
        match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("exec: {program:?}: executable file not found in $PATH")
            }
            _ => format!("exec: {program:?}: {error}"),
        }
    })
}

/// Runs `mount` with these arguments.
pub(super) fn mount(arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("mount");
    command.args(arguments).stdin(Stdio::null());
    let done = run(command).map_err(|error| format!("mount failed: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!(
        "mount failed: {}\nMounting command: mount\nMounting arguments: {}\nOutput: {}",
        exit_status(&done),
        arguments.join(" "),
        output(&done)
    ))
}

/// Everything that a program has printed.
pub(super) fn output(done: &Output) -> String {
    let both = [done.stdout.as_slice(), &done.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// How a program ended.
pub(super) fn exit_status(done: &Output) -> String {
    match done.status.code() {
        Some(code) => format!("exit status {code}"),
        None => done.status.to_string(),
    }
}
