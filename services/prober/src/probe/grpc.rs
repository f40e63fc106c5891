//! `grpc.health.v1` over plain text.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use polylet_kit::report;
use tokio::net::TcpStream;
use tokio::time::sleep;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::{USER_AGENT, net};
use crate::core::types::Observation;

/// Pauses between connections that are refused, from the first to the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How far it has come by the end of the time, if it ended too soon.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    connected: Cell<bool>,
}

impl Heard {
    pub(crate) fn late(&self, host: &str, port: u16, limit: Duration) -> Observation {
        Observation::Failure(if self.connected.get() {
            format!("timeout: health rpc did not complete within {limit:?}")
        } else {
            let to = net::authority(host, port);
            let why = "context deadline exceeded";
            format!("timeout: failed to connect service {to:?} within {limit:?}: {why}")
        })
    }
}

/// Connects afresh and asks; the caller bounds the time. As upstream, a connection that is refused
/// is tried again until then.
pub(crate) async fn ask(host: &str, port: u16, service: &str, heard: &Heard) -> Observation {
    let mut pause = RETRY.0;
    let stream = loop {
        match net::connect(host, port).await {
            Ok(stream) => break stream,
            Err(_) => sleep(pause).await,
        }
        pause = (pause * 2).min(RETRY.1);
    };
    let channel = match channel(stream, &net::authority(host, port)).await {
        Ok(channel) => channel,
        Err(error) => {
            return Observation::Failure(format!(
                "error: health rpc probe failed: {}",
                report(&error)
            ));
        }
    };
    heard.connected.set(true);
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    match HealthClient::new(channel).check(request).await {
        Ok(answer) if answer.get_ref().status() == ServingStatus::Serving => Observation::Success,
        Ok(answer) => {
            let status = answer.get_ref().status().as_str_name();
            Observation::Failure(format!("service unhealthy (responded with {status:?})"))
        }
        Err(status) if status.code() == Code::Unimplemented => Observation::Failure(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
            status.message()
        )),
        Err(status) => Observation::Failure(format!(
            "error: health rpc probe failed: rpc error: code = {:?} desc = {}",
            status.code(),
            status.message()
        )),
    }
}

/// A channel over this one connection.
async fn channel(stream: TcpStream, authority: &str) -> Result<Channel, tonic::transport::Error> {
    let mut stream = Some(stream);
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.take().map(TokioIo::new);
        async { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    let endpoint = Endpoint::from_shared(format!("http://{authority}"))?;
    let endpoint = endpoint.user_agent(USER_AGENT)?;
    endpoint.connect_with_connector(connector).await
}
