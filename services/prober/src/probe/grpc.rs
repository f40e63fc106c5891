//! `grpc.health.v1` over plain text.

use hyper_util::rt::TokioIo;
use polylet_kit::report;
use tonic::Code;
use tonic::transport::{Endpoint, Uri};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::{USER_AGENT, net};
use crate::core::types::Observation;

/// Connects afresh and asks; the caller bounds the time.
pub(crate) async fn ask(host: &str, port: u16, service: &str) -> Observation {
    let authority = net::authority(host, port);
    let endpoint = match Endpoint::from_shared(format!("http://{authority}")) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            return Observation::Unknown(format!("{authority} is no address: {}", report(&error)));
        }
    };
    let Ok(endpoint) = endpoint.user_agent(USER_AGENT) else {
        return Observation::Unknown("the user agent cannot be sent".to_owned());
    };
    let host = host.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let host = host.clone();
        async move { net::connect(&host, port).await.map(TokioIo::new) }
    });
    let channel = match endpoint.connect_with_connector(connector).await {
        Ok(channel) => channel,
        Err(error) => {
            return Observation::Failure(format!("connecting to {authority}: {}", report(&error)));
        }
    };
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    match HealthClient::new(channel).check(request).await {
        Ok(answer) if answer.get_ref().status() == ServingStatus::Serving => Observation::Success,
        Ok(answer) => {
            let status = answer.get_ref().status().as_str_name();
            Observation::Failure(format!("service unhealthy (responded with {status:?})"))
        }
        Err(status) if status.code() == Code::Unimplemented => Observation::Failure(
            "this server does not implement the grpc health protocol".to_owned(),
        ),
        Err(status) => Observation::Failure(format!(
            "health rpc failed: {}: {}",
            status.code().description(),
            status.message()
        )),
    }
}
