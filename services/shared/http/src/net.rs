//! Connections.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

/// As upstream: such a socket does not linger long in the kernel.
const LINGER: Duration = Duration::from_secs(1);

/// A new connection. A host may be an address or a name.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, port)).await?;
    rustix::net::sockopt::set_socket_linger(&stream, Some(LINGER))?;
    // Requests are one small write each.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Host and port as an address is written.
pub fn authority(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}
