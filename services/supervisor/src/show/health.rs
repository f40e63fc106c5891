//! `polylet health`: whether one service serves, for health checks of service managers.

use polylet_kit::Config;
use serde_json::json;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::args::OutputFormat;
use crate::client::{self, ClientError};

/// Prints the health of a service; an error unless it serves.
pub(crate) async fn show(
    config: &Config,
    service: &str,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let service = client::known_service(service)?;
    let mut health = HealthClient::new(client::connect(config, service)?);
    let check = health.check(HealthCheckRequest::default());
    let status = client::call(service, check).await?.status();
    if status != ServingStatus::Serving {
        return Err(ClientError::NoResponse {
            service,
            message: status.as_str_name().to_owned(),
        });
    }
    let word = status.as_str_name();
    match output {
        OutputFormat::Json => super::json(&json!({ "service": service, "health": word })),
        OutputFormat::Text => super::print(&format!("{word}\n")),
    }
    Ok(())
}
