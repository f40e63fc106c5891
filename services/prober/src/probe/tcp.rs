//! `tcpSocket`: succeeds when the port accepts a connection.

pub(crate) use polylet_http::host_port;
use polylet_http::{Client, dial_error};

use crate::core::types::ProbeOutput;

pub(crate) async fn probe(client: &Client, requester: &str, host: &str, port: u16) -> ProbeOutput {
    match client.connect(requester, host, port).await {
        Ok(_) => ProbeOutput::Success,
        Err(error) if error.is_out_of_descriptors() => ProbeOutput::Unknown(error.to_string()),
        Err(error) => ProbeOutput::Failure(error.to_string()),
    }
}

/// The result of an attempt without a connection in time.
pub(crate) fn timed_out(host: &str, port: u16) -> ProbeOutput {
    ProbeOutput::Failure(dial_error(host, port, "i/o timeout"))
}
