//! The runtime's own server of streams.

use polylet_harness::{HarnessError, Node, containerd, cri};
use polylet_wire::runtime::v1::runtime_service_client::RuntimeServiceClient;
use polylet_wire::runtime::v1::{ExecRequest, PortForwardRequest};
use tonic::transport::Channel;

use super::client::{Endpoint, http_error};

/// Asks a node's runtime for streams.
pub(super) struct RuntimeStreams {
    client: RuntimeServiceClient<Channel>,
}

impl RuntimeStreams {
    pub(super) fn new(node: &Node) -> Result<Self, HarnessError> {
        let socket = containerd::socket(node.scratch());
        Ok(Self {
            client: RuntimeServiceClient::new(cri::channel(&socket)?),
        })
    }

    /// Where a command's streams are served.
    pub(super) async fn exec(
        &self,
        container: &str,
        command: &str,
    ) -> Result<(Endpoint, String), HarnessError> {
        let request = ExecRequest {
            container_id: container.to_owned(),
            cmd: vec![command.to_owned()],
            stdout: true,
            stderr: true,
            ..ExecRequest::default()
        };
        let response = self.client.clone().exec(request).await;
        endpoint(
            &response
                .map_err(|status| failed("Exec", status))?
                .into_inner()
                .url,
        )
    }

    /// Where a port's streams are served.
    pub(super) async fn port_forward(
        &self,
        sandbox: &str,
        port: u16,
    ) -> Result<(Endpoint, String), HarnessError> {
        let request = PortForwardRequest {
            pod_sandbox_id: sandbox.to_owned(),
            port: vec![port.into()],
        };
        let response = self.client.clone().port_forward(request).await;
        let response = response.map_err(|status| failed("PortForward", status))?;
        endpoint(&response.into_inner().url)
    }
}

fn failed(call: &'static str, status: tonic::Status) -> HarnessError {
    HarnessError::Call {
        call,
        source: Box::new(status),
    }
}

/// Of `http://127.0.0.1:39281/exec/token`.
fn endpoint(url: &str) -> Result<(Endpoint, String), HarnessError> {
    let rest = url.strip_prefix("http://").and_then(|rest| {
        let (host, path) = rest.split_once('/')?;
        let port = host.rsplit(':').next()?.parse().ok()?;
        Some((Endpoint { tls: None, port }, format!("/{path}")))
    });
    rest.ok_or_else(|| http_error(url, "http://ADDRESS:PORT/PATH was expected".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_the_runtime() {
        let (endpoint, path) = endpoint("http://127.0.0.1:39281/exec/token").unwrap();
        assert_eq!((endpoint.port, path.as_str()), (39281, "/exec/token"));
        for wrong in [
            "",
            "http://",
            "http://host/exec",
            "https://h:1/exec",
            "http://h:1",
        ] {
            assert!(super::endpoint(wrong).is_err(), "{wrong}");
        }
    }
}
