use std::path::{Path, PathBuf};

use tokio::net::UnixDatagram;
use tokio::sync::mpsc::UnboundedSender;

use super::stack::Input;

/// What a service says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Ready,
    Stopping,
    Watchdog,
}

/// Opens a service's notify socket, in the supervisor's own directory.
pub(super) fn open(directory: &Path, service: &str) -> std::io::Result<(PathBuf, UnixDatagram)> {
    let path = directory.join(format!("{service}.notify"));
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixDatagram::bind(&path)?;
    Ok((path, socket))
}

/// Reads it for ever.
pub(super) async fn read(at: usize, socket: UnixDatagram, inputs: UnboundedSender<Input>) {
    let mut buffer = [0; 1024];
    loop {
        let Ok(length) = socket.recv(&mut buffer).await else {
            // A datagram socket of our own does not fail but for want of memory.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        for (said, pid) in parse(&buffer[..length]) {
            if inputs.send(Input::Said { at, said, pid }).is_err() {
                return;
            }
        }
    }
}

/// The messages that matter, with the process id when one is named.
fn parse(message: &[u8]) -> Vec<(Said, Option<u32>)> {
    let text = String::from_utf8_lossy(message);
    let pid = text
        .lines()
        .find_map(|line| line.strip_prefix("MAINPID=")?.parse().ok());
    let said = |line: &str| match line {
        "READY=1" => Some(Said::Ready),
        "STOPPING=1" => Some(Said::Stopping),
        "WATCHDOG=1" => Some(Said::Watchdog),
        _ => None,
    };
    text.lines()
        .filter_map(said)
        .map(|said| (said, pid))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        assert_eq!(parse(b"READY=1\nMAINPID=7\n"), [(Said::Ready, Some(7))]);
        assert_eq!(parse(b"WATCHDOG=1"), [(Said::Watchdog, None)]);
        assert_eq!(parse(b"STATUS=x\nSTOPPING=1\n"), [(Said::Stopping, None)]);
        assert_eq!(parse(b"\xff\xfe=\nREADY=0"), []);
    }
}
