//! Descriptors that a service stores with the service manager, and inherits at its next start (`FDSTORE` in
//! `sd_notify(3)`): listening sockets of TCP ports.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// Descriptors of one service at most.
pub(super) const MAX_STORED: usize = 4;

/// The stored descriptors of one service, by name.
#[derive(Debug, Default)]
pub(super) struct StoredDescriptors {
    by_name: BTreeMap<String, OwnedFd>,
}

impl StoredDescriptors {
    /// Stores a descriptor in place of the one of the same name. Returns whether there was room for it.
    pub(super) fn store(&mut self, name: String, descriptor: OwnedFd) -> bool {
        let has_room = self.by_name.len() < MAX_STORED || self.by_name.contains_key(&name);
        if has_room {
            self.by_name.insert(name, descriptor);
        }
        has_room
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// Names and descriptors, in the order of names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        let each = self.by_name.iter();
        each.map(|(name, descriptor)| (name.as_str(), descriptor.as_fd()))
    }
}

/// A message in the buffer.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) length: usize,
    pub(super) descriptors: Vec<OwnedFd>,
    /// The id of the process that sent it.
    pub(super) sender: Option<u32>,
}

/// Receives a message with its descriptors.
pub(super) async fn receive(socket: &UnixDatagram, buffer: &mut [u8]) -> std::io::Result<Received> {
    let attempt = || {
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_STORED), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(buffer)];
        let received = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let (mut descriptors, mut sender) = (Vec::new(), None);
        for message in control.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(more) => descriptors.extend(more),
                RecvAncillaryMessage::ScmCredentials(of) => {
                    sender = u32::try_from(of.pid.as_raw_nonzero().get()).ok();
                }
                _ => {}
            }
        }
        Ok(Received {
            length: received.bytes,
            descriptors,
            sender,
        })
    };
    socket.async_io(Interest::READABLE, attempt).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn descriptors_are_replaced_by_name_and_bounded() {
        let mut stored = StoredDescriptors::default();
        for at in 0..MAX_STORED {
            assert!(stored.store(format!("port-{at}"), file()));
        }
        assert!(!stored.store("one-more".to_owned(), file()));
        assert!(stored.store("port-0".to_owned(), file()));
        stored.remove("port-1");
        let names: Vec<&str> = stored.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["port-0", "port-2", "port-3"]);
    }
}
