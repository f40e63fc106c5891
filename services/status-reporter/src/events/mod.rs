//! Events out of the notices of all services. As upstream, events are best effort: nothing waits for
//! them, and they are dropped while the API server is unavailable for long. How they are counted,
//! combined, limited and delayed is decided in `core/events`.

mod publisher;
mod sources;

use polylet_api::ClientConfig;
use polylet_kit::Ctx;
use polylet_kit::state_file::StateFileError;
use polylet_model::PodUid;
use tokio::sync::{mpsc, watch};

/// Starts the publisher; none on a standalone node. `busy`: status patches are in flight. `removals`: uids of pods
/// that are gone.
///
/// # Errors
/// Its state file cannot be read, or a newer build wrote it.
pub(crate) fn start(
    ctx: &Ctx,
    busy: watch::Receiver<bool>,
    removals: mpsc::UnboundedReceiver<PodUid>,
) -> Result<(), StateFileError> {
    if let Some(access) = ClientConfig::from_config(ctx.config(), crate::DESCRIPTOR.service) {
        let publisher = publisher::EventPublisher::new(ctx, access, busy, removals)?;
        ctx.spawn("events", publisher.run());
    }
    Ok(())
}
