//! Notify sockets, in the protocol of `sd_notify(3)`.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::notify::{DRAINED_VARIABLE, ERROR_VARIABLE};
use tokio::sync::mpsc::UnboundedSender;

use super::input::{Input, NotifyMessage};
use super::stored_descriptors::{self, Received};

/// The path of the notify socket of a service.
pub(super) fn path(directory: &Path, service: &str) -> PathBuf {
    directory.join(format!("{service}.notify"))
}

/// Opens a notify socket, which does not block.
pub(super) fn open(path: &Path) -> std::io::Result<UnixDatagram> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixDatagram::bind(path)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Reads messages for ever. Needs the tokio runtime.
pub(super) fn read(
    at: usize,
    socket: UnixDatagram,
    inputs: UnboundedSender<Input>,
) -> std::io::Result<impl Future<Output = ()>> {
    // Several processes of a service may send at once.
    rustix::net::sockopt::set_socket_passcred(&socket, true)?;
    let socket = tokio::net::UnixDatagram::from_std(socket)?;
    Ok(read_all(at, socket, inputs))
}

async fn read_all(at: usize, socket: tokio::net::UnixDatagram, inputs: UnboundedSender<Input>) {
    let mut buffer = [0; 4096];
    loop {
        let received = stored_descriptors::receive(&socket, &mut buffer).await;
        let Ok(Received {
            length,
            descriptors,
            sender,
        }) = received
        else {
            // Most likely out of memory or descriptors.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let text = buffer.get(..length).unwrap_or_default();
        let mut received: Vec<Input> = parse(text)
            .into_iter()
            .map(|(message, pid)| Input::Notified {
                at,
                message,
                pid: pid.or(sender),
            })
            .collect();
        received.extend(stored(at, text, descriptors));
        for input in received {
            if inputs.send(input).is_err() {
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
            let (name, value) = line.split_once('=')?;
            match name {
                ERROR_VARIABLE => Some(NotifyMessage::Error(value.to_owned())),
                DRAINED_VARIABLE => {
                    let micros = value.parse().ok()?;
                    Some(NotifyMessage::Drained(Duration::from_micros(micros)))
                }
                _ => None,
            }
        }
    };
    text.lines()
        .filter_map(message)
        .map(|message| (message, pid))
        .collect()
}

/// What a message says about stored descriptors. Its only name is that of all its descriptors, which is of
/// use for one.
fn stored(at: usize, message: &[u8], descriptors: Vec<OwnedFd>) -> Option<Input> {
    let text = String::from_utf8_lossy(message);
    let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="))?;
    let has = |wanted| text.lines().any(|line| line == wanted);
    let descriptor = descriptors.into_iter().next();
    // A colon separates names in LISTEN_FDNAMES.
    let is_valid = !name.is_empty() && name.len() <= 255 && !name.contains(':');
    let change = match descriptor {
        Some(descriptor) if has("FDSTORE=1") => Some(descriptor),
        None if has("FDSTOREREMOVE=1") => None,
        _ => return None,
    };
    is_valid.then(|| Input::Stored {
        at,
        name: name.to_owned(),
        descriptor: change,
    })
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
            parse(b"X_POLYLET_DRAINED=10000000\nX_POLYLET_DRAINED=soon\n"),
            [(NotifyMessage::Drained(Duration::from_secs(10)), None)]
        );
        assert_eq!(
            parse(b"STATUS=12 pods\nX_POLYLET_ERROR=x\nSTOPPING=1\n"),
            [
                (NotifyMessage::Error("x".to_owned()), None),
                (NotifyMessage::Stopping, None)
            ]
        );
        assert_eq!(parse(b"\xff\xfe=\nREADY=0"), []);
    }

    #[test]
    fn descriptors_are_stored_and_removed_by_name() {
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let change = |text: &[u8], files| match stored(2, text, files) {
            Some(Input::Stored {
                at,
                name,
                descriptor,
            }) => Some((at, name, descriptor.is_some())),
            _ => None,
        };
        let https = |is_stored| Some((2, "https".to_owned(), is_stored));
        let store = b"FDSTORE=1\nFDNAME=https\n";
        assert_eq!(change(store, vec![file()]), https(true));
        let remove = b"FDSTOREREMOVE=1\nFDNAME=https\n";
        assert_eq!(change(remove, Vec::new()), https(false));
        assert_eq!(change(store, Vec::new()), None);
        assert_eq!(change(b"FDSTORE=1\nFDNAME=a:b\n", vec![file()]), None);
        assert_eq!(change(b"FDSTORE=1\n", vec![file()]), None);
        assert_eq!(change(b"READY=1\nFDNAME=https", vec![file()]), None);
    }

    #[tokio::test]
    async fn a_descriptor_arrives_with_its_message() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path(), "node-api");
        let reader = open(&path).unwrap();
        let (inputs, mut incoming) = tokio::sync::mpsc::unbounded_channel();
        let reading = tokio::spawn(read(0, reader, inputs).unwrap());
        let sender = std::os::unix::net::UnixDatagram::unbound().unwrap();
        sender.connect(&path).unwrap();
        let file = tempfile::tempfile().unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        let descriptors = [std::os::fd::AsFd::as_fd(&file)];
        control.push(rustix::net::SendAncillaryMessage::ScmRights(&descriptors));
        let text = [std::io::IoSlice::new(b"FDSTORE=1\nFDNAME=https")];
        let flags = rustix::net::SendFlags::empty();
        rustix::net::sendmsg(&sender, &text, &mut control, flags).unwrap();
        let Some(Input::Stored {
            descriptor: Some(descriptor),
            ..
        }) = incoming.recv().await
        else {
            panic!("a descriptor to store");
        };
        let inode = |file: &std::fs::File| {
            let metadata = file.metadata().unwrap();
            std::os::unix::fs::MetadataExt::ino(&metadata)
        };
        assert_eq!(inode(&descriptor.into()), inode(&file));
        reading.abort();
    }
}
