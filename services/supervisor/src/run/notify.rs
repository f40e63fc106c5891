//! Notify sockets, in the protocol of `sd_notify(3)`.

use std::path::{Path, PathBuf};

use polylet_kit::notify::ERROR_VARIABLE;
use tokio::net::UnixDatagram;
use tokio::sync::mpsc::UnboundedSender;

use super::input::{Input, NotifyMessage};

/// Opens the notify socket of a service.
pub(super) fn open(directory: &Path, service: &str) -> std::io::Result<(PathBuf, UnixDatagram)> {
    let path = directory.join(format!("{service}.notify"));
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixDatagram::bind(&path)?;
    Ok((path, socket))
}

/// Reads messages for ever.
pub(super) async fn read(at: usize, socket: UnixDatagram, inputs: UnboundedSender<Input>) {
    let mut buffer = [0; 4096];
    loop {
        let Ok(length) = socket.recv(&mut buffer).await else {
            // Most likely out of memory.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        for (message, pid) in parse(buffer.get(..length).unwrap_or_default()) {
            if inputs.send(Input::Notified { at, message, pid }).is_err() {
                return;
            }
        }
    }
}

/// The known messages, with the process id if the datagram names one.
fn parse(message: &[u8]) -> Vec<(NotifyMessage, Option<u32>)> {
    let text = String::from_utf8_lossy(message);
    let pid = text
        .lines()
        .find_map(|line| line.strip_prefix("MAINPID=")?.parse().ok());
    let message = |line: &str| match line {
        "READY=1" => Some(NotifyMessage::Ready),
        "STOPPING=1" => Some(NotifyMessage::Stopping),
        "WATCHDOG=1" => Some(NotifyMessage::Watchdog),
        _ => {
            let (name, error) = line.split_once('=')?;
            (name == ERROR_VARIABLE).then(|| NotifyMessage::Error(error.to_owned()))
        }
    };
    text.lines()
        .filter_map(message)
        .map(|message| (message, pid))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_parsed() {
        assert_eq!(
            parse(b"READY=1\nMAINPID=7\n"),
            [(NotifyMessage::Ready, Some(7))]
        );
        assert_eq!(parse(b"WATCHDOG=1"), [(NotifyMessage::Watchdog, None)]);
        assert_eq!(
            parse(b"STATUS=12 pods\nX_POLYLET_ERROR=x\nSTOPPING=1\n"),
            [
                (NotifyMessage::Error("x".to_owned()), None),
                (NotifyMessage::Stopping, None)
            ]
        );
        assert_eq!(parse(b"\xff\xfe=\nREADY=0"), []);
    }
}
