use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polylet_vm::agent::{CommandOutput, GuestCommand, MAX_OUTPUT};
use rustix::process::{Pid, Signal, kill_process_group};

/// Time for the rest of the output after the end of a command. What it left running may hold its
/// streams open for longer.
const OUTPUT_LIMIT: Duration = Duration::from_secs(1);

/// Runs a command in a process group of its own, which is killed at its time limit.
pub(crate) fn run(command: &GuestCommand, input: Vec<u8>) -> CommandOutput {
    match start(command) {
        Ok(child) => finish(child, command, input),
        Err(error) => CommandOutput {
            stderr: format!("cannot run {:?}: {error}", command.args),
            ..CommandOutput::default()
        },
    }
}

fn start(command: &GuestCommand) -> io::Result<Child> {
    let (program, args) = command
        .args
        .split_first()
        .ok_or(io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(args)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
}

fn finish(mut child: Child, command: &GuestCommand, input: Vec<u8>) -> CommandOutput {
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input is no error.
        std::thread::spawn(move || stdin.write_all(&input));
    }
    let stdout = child.stdout.take().map(OutputReader::start);
    let stderr = child.stderr.take().map(OutputReader::start);
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(child.wait()));
    let limit = Duration::from_millis(command.limit_ms);
    let (status, timed_out) = match ended.recv_timeout(limit) {
        Ok(status) => (status.ok(), false),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            (kill(group, &ended), true)
        }
    };
    CommandOutput {
        code: status.and_then(|status| status.code()),
        timed_out,
        stdout: stdout.map(OutputReader::finish).unwrap_or_default(),
        stderr: stderr.map(OutputReader::finish).unwrap_or_default(),
    }
}

/// Kills the group. A process in an uninterruptible call stays; nobody waits for it.
fn kill(group: Option<Pid>, ended: &Receiver<io::Result<ExitStatus>>) -> Option<ExitStatus> {
    if let Some(group) = group {
        // The group may have ended meanwhile.
        let _ = kill_process_group(group, Signal::KILL);
    }
    ended.recv_timeout(OUTPUT_LIMIT).ok()?.ok()
}

/// Reads a stream in a thread of its own, up to a limit.
struct OutputReader {
    read: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl OutputReader {
    fn start(mut stream: impl Read + Send + 'static) -> Self {
        let read = Arc::new(Mutex::new(Vec::new()));
        let (sender, ended) = channel();
        let shared = Arc::clone(&read);
        std::thread::spawn(move || {
            let mut buffer = [0; 1 << 14];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                let mut read = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let space = MAX_OUTPUT.saturating_sub(read.len());
                read.extend(buffer.iter().take(count.min(space)));
            }
            sender.send(())
        });
        Self { read, ended }
    }

    fn finish(self) -> String {
        // Without an end: what was read so far.
        let _ = self.ended.recv_timeout(OUTPUT_LIMIT);
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&read).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(args: &[&str], limit_ms: u64) -> GuestCommand {
        GuestCommand {
            id: 1,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            limit_ms,
        }
    }

    #[test]
    fn output_and_exit_code_are_returned() {
        let output = run(
            &command(&["sh", "-c", "cat; echo oh >&2; exit 3"], 10_000),
            b"in".to_vec(),
        );
        assert_eq!(output.code, Some(3));
        assert_eq!(
            (output.stdout.as_str(), output.stderr.as_str()),
            ("in", "oh\n")
        );
        assert!(!output.timed_out && !output.succeeded());
    }

    #[test]
    fn a_command_is_killed_at_its_limit() {
        let output = run(
            &command(&["sh", "-c", "echo begun; sleep 1000"], 500),
            b"in".to_vec(),
        );
        assert!(output.timed_out);
        assert_eq!((output.stdout.as_str(), output.code), ("begun\n", None));
    }

    #[test]
    fn a_program_that_does_not_exist_is_reported() {
        let output = run(&command(&["/does/not/exist"], 1000), b"in".to_vec());
        assert!(output.stderr.contains("/does/not/exist"), "{output:?}");
        assert!(!output.succeeded());
    }
}
