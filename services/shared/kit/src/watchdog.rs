//! Pings of the service manager's watchdog, over a socket that stays open: a process without a free file
//! descriptor is not stuck, and is not to be restarted.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::HealthConditions;

/// The health condition of a process that can open no further file or connection.
const OUT_OF_DESCRIPTORS: &str = "OutOfFileDescriptors";

/// A socket to the service manager, if there is one.
pub(crate) struct WatchdogSocket(Option<UnixDatagram>);

impl WatchdogSocket {
    /// Connects to the address in the environment.
    pub(crate) fn open() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET");
        WatchdogSocket(address.and_then(|address| connect(&address).ok()))
    }

    /// Sends a ping; returns whether it was sent.
    pub(crate) fn ping(&self) -> bool {
        let socket = self.0.as_ref();
        socket.is_some_and(|socket| socket.send(b"WATCHDOG=1").is_ok())
    }
}

/// A socket to a path, or to an abstract address, which begins with `@`.
fn connect(address: &OsStr) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match address.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(address)?,
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Names the lack of file descriptors, which only each operation that needs one would report otherwise.
pub(crate) fn record_descriptors(conditions: &HealthConditions) {
    let free = std::io::stderr().as_fd().try_clone_to_owned();
    conditions.record(OUT_OF_DESCRIPTORS, "", &free);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_are_sent_over_one_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let socket = WatchdogSocket(connect(path.as_os_str()).ok());
        for _ in 0..2 {
            assert!(socket.ping());
            let mut message = [0; 64];
            let length = manager.recv(&mut message).unwrap();
            assert_eq!(&message[..length], b"WATCHDOG=1");
        }
        drop(manager);
        assert!(!socket.ping(), "nobody listens any more");
    }

    #[test]
    fn abstract_addresses_begin_with_an_at_sign() {
        let name = format!("polylet-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let socket = WatchdogSocket(connect(OsStr::new(&format!("@{name}"))).ok());
        assert!(socket.ping());
        assert_eq!(manager.recv(&mut [0; 64]).unwrap(), 10);
    }

    #[test]
    fn a_free_descriptor_is_no_condition() {
        let conditions = HealthConditions::default();
        record_descriptors(&conditions);
        assert_eq!(conditions.to_wire(), []);
    }
}
