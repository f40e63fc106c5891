use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use polylet_vm::agent::ConnectOutcome;

/// Time for the other side's first frame: an emulated machine is slow.
const LIMIT: Duration = Duration::from_secs(30);

/// A client's preface of HTTP/2, with no settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The type of a frame with settings, and where it is in a frame.
const SETTINGS: (usize, u8) = (3, 4);

/// Connects to each socket as a gRPC client and prints what happens as JSON.
pub(crate) fn print(sockets: &[&str]) -> io::Result<()> {
    let outcomes: BTreeMap<&str, ConnectOutcome> =
        sockets.iter().map(|path| (*path, connect(path))).collect();
    println!("{}", serde_json::to_string(&outcomes)?);
    Ok(())
}

fn connect(path: &str) -> ConnectOutcome {
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return ConnectOutcome::Refused;
        }
        Err(error) => return ConnectOutcome::Failed(error.to_string()),
    };
    let exchanged = stream
        .set_read_timeout(Some(LIMIT))
        .and_then(|()| stream.write_all(PREFACE));
    let mut frame = [0; 9];
    match exchanged.and_then(|()| stream.read_exact(&mut frame)) {
        Ok(()) if frame[SETTINGS.0] == SETTINGS.1 => ConnectOutcome::Served,
        Ok(()) => ConnectOutcome::Failed(format!("a frame of type {}", frame[SETTINGS.0])),
        Err(error) => match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                ConnectOutcome::Closed
            }
            _ => ConnectOutcome::Failed(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn served_closed_and_failed_connections_are_distinguished() {
        let dir = std::env::temp_dir().join(format!("polylet-connect-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let path = dir.join("x.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.write_all(&PREFACE[24..]).expect("a frame");
            let _ = stream.read(&mut [0; 64]);
            drop(listener.accept().expect("a connection"));
        });
        let path = path.display().to_string();
        assert_eq!(connect(&path), ConnectOutcome::Served);
        assert_eq!(connect(&path), ConnectOutcome::Closed);
        server.join().expect("the server");
        // Not the same path: a process that another test is starting has a copy of the listener
        // until it executes its program, and would accept one more connection.
        let missing = dir.join("missing.sock").display().to_string();
        assert!(matches!(connect(&missing), ConnectOutcome::Failed(_)));
        std::fs::remove_dir_all(&dir).expect("the directory");
    }
}
