//! Connections.

use std::io;

use tokio::net::TcpStream;

/// A new connection. A host may be an address or a name.
///
/// The socket does not linger (upstream asks for one second): on Linux that keeps nothing out of
/// TIME_WAIT, and closing would wait in this thread for a peer that may be gone.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, port)).await?;
    // Requests are one small write each.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A connection that did not come about, as upstream words it.
pub fn dial(host: &str, port: u16, why: &str) -> String {
    format!("dial tcp {}: {why}", authority(host, port))
}

/// An error of a socket, as upstream words it: the system's own text, with the call before it.
pub fn words(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(_) => {
            let text = text.split(" (os error").next().unwrap_or_default();
            format!("connect: {}", text.to_lowercase())
        }
        None => text,
    }
}

/// Host and port as an address is written.
pub fn authority(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}
