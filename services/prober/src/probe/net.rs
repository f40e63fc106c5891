//! Connections, and the probe that wants no more than one.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::core::types::Observation;

/// As upstream: the socket of a probe does not linger long in the kernel.
const LINGER: Duration = Duration::from_secs(1);

/// A new connection. A host may be an address or a name.
pub(crate) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, port)).await?;
    rustix::net::sockopt::set_socket_linger(&stream, Some(LINGER))?;
    // Requests are one small write each.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// `tcpSocket`: whether the port takes a connection.
pub(crate) async fn ask(host: &str, port: u16) -> Observation {
    match connect(host, port).await {
        Ok(_) => Observation::Success,
        Err(error) => {
            Observation::Failure(format!("connecting to {}: {error}", authority(host, port)))
        }
    }
}

/// Host and port as an address is written.
pub(crate) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}
