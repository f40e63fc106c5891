//! Health of the running services.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::input::Input;

/// The delay before a broken watch is opened again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Watches the health of one process until the task is aborted. The call waits in the backlog of the
/// socket until the process accepts it, so nothing is polled.
pub(super) async fn watch(
    at: usize,
    instance: u64,
    channel: Channel,
    inputs: UnboundedSender<Input>,
) {
    let mut health = HealthClient::new(channel);
    loop {
        if let Ok(response) = health.watch(HealthCheckRequest::default()).await {
            let mut changes = response.into_inner();
            while let Ok(Some(change)) = changes.message().await {
                let serving = change.status() == ServingStatus::Serving;
                if inputs
                    .send(Input::Health {
                        at,
                        instance,
                        serving,
                    })
                    .is_err()
                {
                    return;
                }
            }
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}
