//! Who may connect to the service's socket: root, the service's own user, and the members of the group
//! that the socket belongs to, if its mode lets them. A service manager gives each socket a group of the
//! services that are declared to call it.
//!
//! Who may connect may call all methods but those that change or end a process: these are for root and the
//! service's own user ([`require_root_or_own_user`]).
//!
//! The kernel checks the mode of the socket's file when a peer connects; this repeats it for a file whose
//! mode was changed, and for a socket that was inherited by other means.

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;

use tokio::net::UnixStream;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Status};

/// Write permission of the group: what connecting needs.
const GROUP_WRITES: u32 = 0o020;
/// The most supplementary groups of a process (`NGROUPS_MAX`).
const MAX_GROUPS: usize = 65536;

/// Why a peer may not connect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccessError {
    #[error("the peer's credentials cannot be read")]
    Credentials(#[source] std::io::Error),
    #[error("user {uid} is neither root nor a member of the socket's group")]
    Denied { uid: u32 },
}

/// Who may connect to one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketAccess {
    user: u32,
    group: Option<u32>,
}

impl SocketAccess {
    /// That of a listening socket, by the owner of its file.
    pub(crate) fn of(listener: &UnixListener) -> SocketAccess {
        let file = crate::listener::path(listener);
        let file = file.and_then(|path| std::fs::metadata(path).ok());
        let group = file
            .filter(|file| file.mode() & GROUP_WRITES != 0)
            .map(|file| file.gid());
        SocketAccess {
            user: rustix::process::geteuid().as_raw(),
            group,
        }
    }

    /// Checks a connected peer.
    pub(crate) fn check(&self, stream: &UnixStream) -> Result<(), AccessError> {
        let peer = stream.peer_cred().map_err(AccessError::Credentials)?;
        if self.admits(peer.uid(), peer.gid(), &[]) {
            return Ok(());
        }
        let groups = peer_groups(stream).map_err(AccessError::Credentials)?;
        if self.admits(peer.uid(), peer.gid(), &groups) {
            return Ok(());
        }
        Err(AccessError::Denied { uid: peer.uid() })
    }

    fn admits(&self, uid: u32, gid: u32, groups: &[u32]) -> bool {
        let is_member = |group| gid == group || groups.contains(&group);
        is_root_or(self.user, uid) || self.group.is_some_and(is_member)
    }
}

fn is_root_or(user: u32, uid: u32) -> bool {
    uid == 0 || uid == user
}

/// Checks that root or the service's own user calls `method`. For methods that change which programs run or what
/// a service does: services of other users are in the socket's group for less, such as to send their spans.
///
/// # Errors
/// `PermissionDenied` for any other caller, and for one whose credentials are not known.
pub fn require_root_or_own_user<T>(request: &Request<T>, method: &str) -> Result<(), Status> {
    let connection = request.extensions().get::<UdsConnectInfo>();
    let caller = connection.and_then(|connection| connection.peer_cred);
    let own = rustix::process::geteuid().as_raw();
    check_caller(method, caller.map(|caller| caller.uid()), own)
        .inspect_err(|denied| tracing::warn!(error = denied.message(), "refused a call"))
}

fn check_caller(method: &str, caller: Option<u32>, own: u32) -> Result<(), Status> {
    match caller {
        Some(uid) if is_root_or(own, uid) => Ok(()),
        Some(uid) => Err(Status::permission_denied(format!(
            "{method} is not permitted to user {uid}, only to root and to the service's own user"
        ))),
        None => Err(Status::permission_denied(format!(
            "{method} is not permitted to a caller whose credentials are not known"
        ))),
    }
}

/// The supplementary groups that the peer had when it connected (`SO_PEERGROUPS`, unix(7)).
fn peer_groups(stream: &UnixStream) -> std::io::Result<Vec<u32>> {
    use std::os::fd::AsRawFd;
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let size = groups.len() * size_of::<libc::gid_t>();
        let mut length = libc::socklen_t::try_from(size).unwrap_or(libc::socklen_t::MAX);
        // SAFETY: the descriptor is open as long as the stream is borrowed, and the kernel writes at most
        // `length` bytes into the buffer, which has as many.
        #[allow(unsafe_code)] // no crate of the workspace has this option
        let result = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result == 0 {
            let count = usize::try_from(length).unwrap_or(0) / size_of::<libc::gid_t>();
            groups.truncate(count);
            return Ok(groups);
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || groups.len() >= MAX_GROUPS {
            return Err(error);
        }
        groups.resize(MAX_GROUPS, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tonic::Code;
    use tonic::transport::server::Connected;

    use super::*;

    #[test]
    fn root_the_own_user_and_members_of_the_group_are_admitted() {
        let own = SocketAccess {
            user: 7,
            group: None,
        };
        let of_group = SocketAccess {
            group: Some(40),
            ..own
        };
        for (uid, gid, groups, alone, group) in [
            (0, 0, &[][..], true, true),
            (7, 7, &[], true, true),
            (8, 8, &[], false, false),
            (8, 40, &[], false, true),
            (8, 8, &[1, 40], false, true),
            (8, 8, &[41], false, false),
        ] {
            assert_eq!(
                own.admits(uid, gid, groups),
                alone,
                "{uid} {gid} {groups:?}"
            );
            assert_eq!(
                of_group.admits(uid, gid, groups),
                group,
                "{uid} {gid} {groups:?}"
            );
        }
    }

    #[test]
    fn only_root_and_the_own_user_may_call() {
        for (caller, expected) in [
            (Some(0), Ok(())),
            (Some(7), Ok(())),
            (
                Some(8),
                Err("Drain is not permitted to user 8, only to root and to the service's own user"),
            ),
            (
                None,
                Err("Drain is not permitted to a caller whose credentials are not known"),
            ),
        ] {
            let checked = check_caller("Drain", caller, 7);
            let codes = checked.as_ref().err().map(Status::code);
            assert_eq!(codes, expected.err().map(|_| Code::PermissionDenied));
            assert_eq!(
                checked.as_ref().map_err(Status::message),
                expected.as_ref().map_err(|text| *text)
            );
        }
    }

    #[tokio::test]
    async fn the_caller_is_the_peer_of_the_connection() {
        let (stream, _peer) = UnixStream::pair().unwrap();
        let mut request = Request::new(());
        let unknown = require_root_or_own_user(&request, "Drain").unwrap_err();
        assert_eq!(unknown.code(), Code::PermissionDenied);
        request.extensions_mut().insert(stream.connect_info());
        require_root_or_own_user(&request, "Drain").unwrap();
    }

    #[tokio::test]
    async fn the_group_is_that_of_a_socket_that_it_may_write_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let group = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            SocketAccess::of(&listener).group
        };
        assert_eq!(group(0o600), None);
        let gid = std::fs::metadata(&path).unwrap().gid();
        assert_eq!(group(0o660), Some(gid));

        let (peer, _other) = UnixStream::pair().unwrap();
        let known = rustix::process::getgroups().unwrap();
        let mut known: Vec<u32> = known
            .into_iter()
            .map(rustix::process::Gid::as_raw)
            .collect();
        let mut found = peer_groups(&peer).unwrap();
        known.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, known);
        assert!(SocketAccess::of(&listener).check(&peer).is_ok());
        let foreign = SocketAccess {
            user: u32::MAX,
            group: None,
        };
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(foreign.check(&peer).is_ok(), is_root);
    }
}
