use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::stack::Input;

/// A broken watch of a living service is tried again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// Watches one process's health until it is stopped. The call waits in the socket's queue until
/// the process serves, so nothing is polled.
pub(super) async fn watch(at: usize, life: u64, socket: PathBuf, inputs: UnboundedSender<Input>) {
    let mut health = HealthClient::new(polylet_kit::channel::plain(&socket));
    loop {
        if let Ok(answer) = health.watch(HealthCheckRequest::default()).await {
            let mut changes = answer.into_inner();
            while let Ok(Some(change)) = changes.message().await {
                let serving = change.status() == ServingStatus::Serving;
                if inputs.send(Input::Health { at, life, serving }).is_err() {
                    return;
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}
