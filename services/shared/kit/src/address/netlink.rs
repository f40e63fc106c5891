//! Changes of addresses and default routes, over netlink (rtnetlink(7)).
//!
//! Not the `rtnetlink` crate: this needs one subscription and two bytes of each message, and the
//! crate brings six others and a task per connection.

use std::io;
use std::os::unix::net;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use tokio::net::UnixDatagram;

/// Addresses and routes of both families: `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV4_ROUTE`,
/// `RTMGRP_IPV6_IFADDR`, `RTMGRP_IPV6_ROUTE`.
const GROUPS: u32 = 0x10 | 0x40 | 0x100 | 0x400;
const NEW_ADDRESS: u16 = 20;
const DEL_ADDRESS: u16 = 21;
const NEW_ROUTE: u16 = 24;
const DEL_ROUTE: u16 = 25;
/// `RT_SCOPE_LINK`: other machines cannot use addresses of this scope or narrower.
const LINK: u8 = 253;
/// Length of the header of each message.
const HEADER: usize = 16;

/// A netlink socket. For waiting and receiving it is a datagram socket like any other.
pub(super) struct AddressChanges(UnixDatagram);

impl AddressChanges {
    pub(super) fn open() -> io::Result<AddressChanges> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The default protocol is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        UnixDatagram::from_std(net::UnixDatagram::from(socket)).map(AddressChanges)
    }

    /// Waits for a change that may affect the node's addresses.
    pub(super) async fn next(&self) -> io::Result<()> {
        let mut buffer = vec![0_u8; 8192];
        loop {
            match self.0.recv(&mut buffer).await {
                Ok(length) if affects_addresses(buffer.get(..length).unwrap_or_default()) => {
                    return Ok(());
                }
                Ok(_) => {}
                // Messages were lost: any of them may be relevant.
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether any message is about an address that others can use or about a default route. Routes of
/// single pods are not relevant.
fn affects_addresses(mut messages: &[u8]) -> bool {
    while let Some((length, kind)) = header(messages) {
        let body = messages.get(HEADER..length).unwrap_or_default();
        let is_relevant = match kind {
            NEW_ADDRESS | DEL_ADDRESS => body.get(3).is_some_and(|scope| *scope < LINK),
            NEW_ROUTE | DEL_ROUTE => body.get(1) == Some(&0),
            _ => false,
        };
        if is_relevant {
            return true;
        }
        // Messages are aligned to four bytes.
        messages = messages
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
    }
    false
}

/// Length and type of the first message, if it is complete.
fn header(messages: &[u8]) -> Option<(usize, u16)> {
    let length = messages.get(..4)?.try_into().ok()?;
    let length = usize::try_from(u32::from_ne_bytes(length)).ok()?;
    let kind = u16::from_ne_bytes(messages.get(4..6)?.try_into().ok()?);
    (HEADER..=messages.len())
        .contains(&length)
        .then_some((length, kind))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + body.len()).unwrap();
        let mut made = length.to_ne_bytes().to_vec();
        made.extend(kind.to_ne_bytes());
        made.resize(HEADER, 0);
        made.extend(body);
        made.resize(made.len().next_multiple_of(4), 0);
        made
    }

    #[test]
    fn recognizes_relevant_changes() {
        // ifaddrmsg: family, prefix, flags, scope. rtmsg: family, prefix of the destination.
        for (kind, body, is_relevant) in [
            (NEW_ADDRESS, [2, 24, 0, 0], true),
            (DEL_ADDRESS, [10, 64, 0, 0], true),
            (NEW_ADDRESS, [10, 64, 0, LINK], false),
            (NEW_ADDRESS, [2, 8, 0, 254], false),
            (NEW_ROUTE, [2, 0, 0, 0], true),
            (DEL_ROUTE, [2, 32, 0, 0], false),
            (16, [0, 0, 0, 0], false),
        ] {
            let one = message(kind, &body);
            assert_eq!(affects_addresses(&one), is_relevant, "{kind} {body:?}");
            let after = [message(NEW_ROUTE, &[2, 32, 0, 0, 1]), one.clone()].concat();
            assert_eq!(
                affects_addresses(&after),
                is_relevant,
                "{kind} {body:?} after another"
            );
            assert!(!affects_addresses(&one[..one.len() - 1]), "cut off");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            affects_addresses(&bytes);
        }
    }
}
