//! `grpc`: the health service of `grpc.health.v1`, without TLS.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use polylet_http::Client;
use polylet_kit::report;
use polylet_schedule::Backoff;
use tokio::net::TcpStream;
use tokio::time::sleep;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::{USER_AGENT, tcp};
use crate::core::types::ProbeOutput;

/// Delays after refused connections.
const RETRY_INITIAL: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// How far an attempt has come, for the message of a timeout.
#[derive(Debug, Default)]
pub(crate) struct HealthCheckProgress {
    connected: Cell<bool>,
}

impl HealthCheckProgress {
    /// The result of an attempt without a response in time.
    pub(crate) fn timed_out(&self, host: &str, port: u16, timeout: Duration) -> ProbeOutput {
        ProbeOutput::Failure(if self.connected.get() {
            format!("timeout: health rpc did not complete within {timeout:?}")
        } else {
            let to = tcp::host_port(host, port);
            let cause = "context deadline exceeded";
            format!("timeout: failed to connect service {to:?} within {timeout:?}: {cause}")
        })
    }
}

/// Opens a connection and calls `Check`; the caller limits the time. As upstream, a refused connection
/// is retried until then.
pub(crate) async fn probe(
    client: &Client,
    (requester, host, port): (&str, &str, u16),
    service: &str,
    progress: &HealthCheckProgress,
) -> ProbeOutput {
    let mut backoff = Backoff::new(RETRY_INITIAL, RETRY_MAX);
    let stream = loop {
        match client.connect(requester, host, port).await {
            Ok(stream) => break stream,
            Err(error) if error.is_out_of_descriptors() => {
                return ProbeOutput::Unknown(error.to_string());
            }
            Err(_) => sleep(backoff.next_delay()).await,
        }
    };
    let channel = match channel(stream, &tcp::host_port(host, port)).await {
        Ok(channel) => channel,
        Err(error) => {
            return ProbeOutput::Failure(format!(
                "error: health rpc probe failed: {}",
                report(&error)
            ));
        }
    };
    progress.connected.set(true);
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    match HealthClient::new(channel).check(request).await {
        Ok(response) if response.get_ref().status() == ServingStatus::Serving => {
            ProbeOutput::Success
        }
        Ok(response) => {
            let status = response.get_ref().status().as_str_name();
            ProbeOutput::Failure(format!("service unhealthy (responded with {status:?})"))
        }
        Err(status) if status.code() == Code::Unimplemented => ProbeOutput::Failure(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
            status.message()
        )),
        Err(status) => ProbeOutput::Failure(format!(
            "error: health rpc probe failed: rpc error: code = {:?} desc = {}",
            status.code(),
            status.message()
        )),
    }
}

/// A channel over one connection.
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
