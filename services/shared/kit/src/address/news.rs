//! Word of the kernel that addresses of this machine, or its way to others, change.

use std::io;
use std::os::unix::net;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use tokio::net::UnixDatagram;

/// Addresses and routes of both families: RTMGRP_IPV4_IFADDR and so on.
const GROUPS: u32 = 0x10 | 0x40 | 0x100 | 0x400;
const NEW_ADDRESS: u16 = 20;
const DEL_ADDRESS: u16 = 21;
const NEW_ROUTE: u16 = 24;
const DEL_ROUTE: u16 = 25;
/// RT_SCOPE_LINK: such addresses, and narrower ones, are of no use to other machines.
const LINK: u8 = 253;
/// Of what every message begins with.
const HEADER: usize = 16;

/// A socket that hears it. To those who only wait and receive, one datagram socket is as another.
pub(super) struct News(UnixDatagram);

impl News {
    pub(super) fn open() -> io::Result<News> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The protocol by default is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        UnixDatagram::from_std(net::UnixDatagram::from(socket)).map(News)
    }

    /// Returns when there is something that the node's addresses may depend on.
    pub(super) async fn next(&self) -> io::Result<()> {
        let mut room = vec![0_u8; 8192];
        loop {
            match self.0.recv(&mut room).await {
                Ok(length) if concerns(room.get(..length).unwrap_or_default()) => return Ok(()),
                Ok(_) => {}
                // Some of it is lost: any of that may have mattered.
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether any of the messages is of an address that others can use, or of a way to everywhere. Pods
/// come and go with routes of their own, which say nothing here.
fn concerns(mut messages: &[u8]) -> bool {
    while let Some((length, kind)) = header(messages) {
        let body = messages.get(HEADER..length).unwrap_or_default();
        let does = match kind {
            NEW_ADDRESS | DEL_ADDRESS => body.get(3).is_some_and(|scope| *scope < LINK),
            NEW_ROUTE | DEL_ROUTE => body.get(1) == Some(&0),
            _ => false,
        };
        if does {
            return true;
        }
        // Each begins at a multiple of four.
        messages = messages
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
    }
    false
}

/// The length and the kind of the first message, if it is whole.
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
    fn what_addresses_depend_on() {
        // ifaddrmsg: family, prefix, flags, scope. rtmsg: family, prefix of the destination.
        for (kind, body, does) in [
            (NEW_ADDRESS, [2, 24, 0, 0], true),
            (DEL_ADDRESS, [10, 64, 0, 0], true),
            (NEW_ADDRESS, [10, 64, 0, LINK], false),
            (NEW_ADDRESS, [2, 8, 0, 254], false),
            (NEW_ROUTE, [2, 0, 0, 0], true),
            (DEL_ROUTE, [2, 32, 0, 0], false),
            (16, [0, 0, 0, 0], false),
        ] {
            let one = message(kind, &body);
            assert_eq!(concerns(&one), does, "{kind} {body:?}");
            let after = [message(NEW_ROUTE, &[2, 32, 0, 0, 1]), one.clone()].concat();
            assert_eq!(concerns(&after), does, "{kind} {body:?} after another");
            assert!(!concerns(&one[..one.len() - 1]), "cut off");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_heard(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            concerns(&bytes);
        }
    }
}
