//! The server at which plugins register.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use polylet_kit::CancellationToken;
use polylet_wire::deviceplugin::v1beta1 as wire;
use polylet_wire::deviceplugin::v1beta1::registration_server::{Registration, RegistrationServer};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::input::{PluginInput, PluginRegistration};

/// The requests of plugins.
struct RegistrationService {
    inputs: mpsc::Sender<PluginInput>,
}

/// Serves registrations until the process drains.
pub(crate) async fn serve(
    listener: UnixListener,
    path: PathBuf,
    inputs: mpsc::Sender<PluginInput>,
    drain: CancellationToken,
) {
    let listener = listener
        .set_nonblocking(true)
        .and_then(|()| tokio::net::UnixListener::from_std(listener));
    let served = match listener {
        Ok(listener) => {
            let service = RegistrationServer::new(RegistrationService { inputs });
            let incoming = UnixListenerStream::new(listener);
            let server = Server::builder().add_service(service);
            let served =
                server.serve_with_incoming_shutdown(incoming, drain.clone().cancelled_owned());
            served.await.map_err(|error| polylet_kit::report(&error))
        }
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = served {
        let path = path.display();
        tracing::warn!(%path, error, "device plugins cannot register");
        drain.cancelled().await;
    }
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn register(
        &self,
        request: Request<wire::RegisterRequest>,
    ) -> Result<Response<wire::Empty>, Status> {
        let request = request.into_inner();
        let (response, result) = oneshot::channel();
        let registration = PluginRegistration {
            version: request.version,
            resource: request.resource_name,
            endpoint: request.endpoint,
            response,
        };
        let stopping = || Status::unavailable("device-manager is shutting down");
        let sent = self.inputs.send(PluginInput::Register(registration)).await;
        sent.map_err(|_| stopping())?;
        match result.await.map_err(|_| stopping())? {
            Ok(()) => Ok(Response::new(wire::Empty {})),
            // As of an error of a Go server.
            Err(error) => Err(Status::unknown(error)),
        }
    }
}
