//! `tcpSocket`: succeeds when the port accepts a connection.

pub(crate) use polylet_http::{connect, host_port};
use polylet_http::{connect_error, dial_error};

use crate::core::types::ProbeOutput;

pub(crate) async fn probe(host: &str, port: u16) -> ProbeOutput {
    match connect(host, port).await {
        Ok(_) => ProbeOutput::Success,
        Err(error) => ProbeOutput::Failure(connect_error(host, port, &error)),
    }
}

/// The result of an attempt without a connection in time.
pub(crate) fn timed_out(host: &str, port: u16) -> ProbeOutput {
    ProbeOutput::Failure(dial_error(host, port, "i/o timeout"))
}
