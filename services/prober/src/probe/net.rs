//! The probe that wants no more than a connection.

pub(crate) use polylet_http::{authority, connect, dial, words};

use crate::core::types::Observation;

/// `tcpSocket`: whether the port takes a connection.
pub(crate) async fn ask(host: &str, port: u16) -> Observation {
    match connect(host, port).await {
        Ok(_) => Observation::Success,
        Err(error) => Observation::Failure(dial(host, port, &words(&error))),
    }
}
