//! TCP connections, with errors in the words of Go's `net` package.

use std::io;

use tokio::net::TcpStream;

/// Opens a connection to an address or a name.
///
/// The socket does not linger (upstream sets one second): on Linux that keeps nothing out of
/// TIME_WAIT, and closing would block this thread until a peer that may be gone has answered.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, port)).await?;
    // Requests are one small write each.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The message of a connection that failed, as upstream's:
/// `dial tcp 10.0.0.1:80: connect: connection refused`.
pub fn connect_error(host: &str, port: u16, error: &io::Error) -> String {
    let text = error.to_string();
    let reason = match error.raw_os_error() {
        Some(_) => {
            let text = text.split(" (os error").next().unwrap_or_default();
            format!("connect: {}", text.to_lowercase())
        }
        None => text,
    };
    dial_error(host, port, &reason)
}

/// The same with a reason that is not the system's.
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
