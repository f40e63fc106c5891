//! TCP connections, with errors in the words of Go's `net` package.

use std::io;

use tokio::net::TcpStream;

use crate::resolver::{LookupError, Resolver};

/// Why a connection could not be opened. Worded as upstream:
/// `dial tcp 10.0.0.1:80: connect: connection refused`.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address.
    #[error("dial tcp: lookup {host}: {reason}", reason = lookup_reason(cause))]
    Lookup {
        /// The name.
        host: String,
        /// The cause, which the message contains.
        cause: LookupError,
    },
    /// No address accepted the connection.
    #[error("{}", dial_error(host, *port, &connect_reason(cause)))]
    Connect {
        /// The name or address.
        host: String,
        /// The port.
        port: u16,
        /// The cause, which the message contains.
        cause: io::Error,
    },
}

impl DialError {
    /// Whether this process or machine has no file descriptor left: says nothing about the server.
    pub fn is_out_of_descriptors(&self) -> bool {
        // EMFILE and ENFILE, the same on all Linux architectures.
        const CODES: [i32; 2] = [24, 23];
        let code = match self {
            DialError::Lookup {
                cause: LookupError::Failed(cause),
                ..
            } => cause.raw_os_error(),
            DialError::Lookup { .. } => None,
            DialError::Connect { cause, .. } => cause.raw_os_error(),
        };
        code.is_some_and(|code| CODES.contains(&code))
    }
}

/// Opens a connection to an address or a name.
///
/// The socket does not linger (upstream sets one second): on Linux that keeps nothing out of
/// TIME_WAIT, and closing would block this thread until a peer that may be gone has answered.
pub(crate) async fn connect(
    resolver: &Resolver,
    requester: &str,
    host: &str,
    port: u16,
) -> Result<TcpStream, DialError> {
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let addresses = resolver.resolve(requester, name, port).await;
    let addresses = addresses.map_err(|cause| DialError::Lookup {
        host: name.to_owned(),
        cause,
    })?;
    let stream = async {
        let stream = TcpStream::connect(&*addresses).await?;
        // Requests are one small write each.
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    stream.await.map_err(|cause| DialError::Connect {
        host: host.to_owned(),
        port,
        cause,
    })
}

fn lookup_reason(error: &LookupError) -> String {
    let text = error.to_string();
    // The system's words for a name that does not exist, or that has no address.
    let unknown = ["Name or service not known", "No address associated"];
    if unknown.iter().any(|reason| text.contains(reason)) {
        "no such host".to_owned()
    } else {
        text
    }
}

fn connect_reason(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(_) => {
            let text = text.split(" (os error").next().unwrap_or_default();
            format!("connect: {}", text.to_lowercase())
        }
        None => text,
    }
}

/// The message of a connection that failed, with a reason that is not the system's.
pub fn dial_error(host: &str, port: u16, reason: &str) -> String {
    format!("dial tcp {}: {reason}", host_port(host, port))
}

/// Host and port, with an IPv6 address in brackets.
pub fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_descriptors_is_not_the_servers() {
        for (code, expected) in [(24, true), (23, true), (111, false)] {
            let cause = io::Error::from_raw_os_error(code);
            let (host, port) = ("10.0.0.1".to_owned(), 80);
            let error = DialError::Connect { host, port, cause };
            assert_eq!(error.is_out_of_descriptors(), expected, "{error}");
        }
        let cause = LookupError::Timeout;
        let host = "a".to_owned();
        assert!(!DialError::Lookup { host, cause }.is_out_of_descriptors());
    }

    #[tokio::test]
    async fn errors_are_worded_as_upstream() {
        let system = |host: &str| {
            Err(io::Error::other(match host {
                "gone" => "failed to lookup address information: Name or service not known",
                _ => "failed to lookup address information: System error",
            }))
        };
        let resolver = Resolver::with_system(system);
        for (host, message) in [
            ("gone", "dial tcp: lookup gone: no such host"),
            (
                "broken",
                "dial tcp: lookup broken: failed to lookup address information: System error",
            ),
            (
                "127.0.0.1",
                "dial tcp 127.0.0.1:1: connect: connection refused",
            ),
            ("[::1]", "dial tcp [::1]:1: connect: connection refused"),
        ] {
            let error = connect(&resolver, "pod", host, 1).await.unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
