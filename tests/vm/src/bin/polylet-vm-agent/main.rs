//! The agent in a virtual machine of the tests: runs commands that arrive on a serial port, inspects
//! the services' state files, observes pods, connects to sockets and calls methods.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polylet_vm::agent::{AgentMessage, GuestCommand, PORT, decode, read_some, send};

/// Calls of methods.
mod call;
/// Connections to sockets.
mod connect;
/// Execution of one command.
mod execute;
/// Inspection of state files.
mod inspect;
/// Observation of pods.
mod observe;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["serve"] => serve(Path::new("/dev/virtio-ports").join(PORT).as_path()),
        ["inspect", directories @ ..] => inspect::print(directories),
        ["observe"] => observe::print(),
        ["connect", sockets @ ..] => connect::print(sockets),
        ["call", socket, methods @ ..] => call::print(socket, methods),
        _ => {
            eprintln!(
                "usage: polylet-vm-agent serve | inspect DIRECTORY... | observe | connect SOCKET... | \
                 call SOCKET METHOD..."
            );
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("polylet-vm-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs commands until the port fails. Commands run concurrently.
fn serve(port: &Path) -> io::Result<()> {
    let mut reader = File::options().read(true).write(true).open(port)?;
    let writer = Arc::new(Mutex::new(reader.try_clone()?));
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let boot_id = boot_id.trim().to_owned();
    respond(&writer, &AgentMessage::Ready { boot_id })?;
    let mut received = Vec::new();
    loop {
        if read_some(&mut reader, &mut received)? == 0 {
            // Nobody is connected on the other side. There is no event that tells of the next one.
            #[allow(
                clippy::disallowed_methods,
                reason = "a process without an async runtime waits for its peer"
            )]
            std::thread::sleep(Duration::from_millis(100));
            continue;
        }
        while let Some((command, input)) = decode::<GuestCommand>(&mut received)? {
            let writer = Arc::clone(&writer);
            std::thread::spawn(move || {
                let id = command.id;
                let output = execute::run(&command, input);
                // A broken port ends the reader, too.
                let _ = respond(&writer, &AgentMessage::Ended { id, output });
            });
        }
    }
}

fn respond(writer: &Mutex<File>, message: &AgentMessage) -> io::Result<()> {
    let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
    send(&mut *writer, message)
}
