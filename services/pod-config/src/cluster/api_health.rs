//! Availability of the API server: determined by the watch of pods, reported as a manifest error, and
//! respected by all other requests.

use std::sync::Arc;

use jiff::Timestamp;
use polylet_wire::podconfig::v1::{ManifestError, PodSource};
use polylet_wire::time::to_wire;
use tokio::sync::watch;

use super::request::ApiRequestError;

/// A current outage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outage {
    pub(crate) since: Timestamp,
    /// The last error.
    pub(crate) message: String,
    /// Whether other requests would fail as well; not so when only the watch of pods is forbidden.
    blocks_requests: bool,
}

/// Shared by everything that sends requests.
#[derive(Clone)]
pub(crate) struct ApiHealth(Arc<watch::Sender<Option<Outage>>>);

impl ApiHealth {
    pub(crate) fn new() -> ApiHealth {
        ApiHealth(Arc::new(watch::Sender::new(None)))
    }

    /// Ends the outage, if there is one.
    pub(crate) fn recovered(&self) {
        let ended = self.0.send_replace(None);
        if let Some(outage) = ended {
            tracing::info!(since = %outage.since, "API server is available again");
        }
    }

    /// Starts or continues an outage. An ongoing one keeps its start.
    pub(crate) fn record_failure(&self, error: &ApiRequestError, now: Timestamp) {
        let blocks_requests = error.kind.is_transient();
        self.0.send_if_modified(|outage| {
            let since = outage.as_ref().map_or(now, |outage| outage.since);
            let current = Outage {
                since,
                message: error.message.clone(),
                blocks_requests,
            };
            if outage.as_ref() == Some(&current) {
                return false;
            }
            tracing::warn!(%since, %error, "API server is unavailable; keeping its last state");
            *outage = Some(current);
            true
        });
    }

    /// Start of the current outage.
    pub(crate) fn outage_since(&self) -> Option<Timestamp> {
        self.0.borrow().as_ref().map(|outage| outage.since)
    }

    /// The error of the current outage, while requests would fail.
    pub(crate) fn backing_off(&self) -> Option<String> {
        let outage = self.0.borrow();
        let outage = outage.as_ref().filter(|outage| outage.blocks_requests)?;
        Some(outage.message.clone())
    }

    /// Waits until requests can succeed.
    pub(crate) async fn wait_until_available(&self) {
        let mut changes = self.0.subscribe();
        let available =
            |outage: &Option<Outage>| !outage.as_ref().is_some_and(|o| o.blocks_requests);
        // Fails only without a sender, and `self` holds it.
        let _ = changes.wait_for(available).await;
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Outage>> {
        self.0.subscribe()
    }

    /// The current outage as an entry of `ListManifestErrors`.
    pub(crate) fn manifest_error(&self) -> Option<ManifestError> {
        let outage = self.0.borrow();
        let outage = outage.as_ref()?;
        Some(ManifestError {
            source: PodSource::Api.into(),
            origin: "API server".to_owned(),
            field: String::new(),
            message: format!(
                "unavailable since {:.0}, keeping its last state: {}",
                outage.since, outage.message
            ),
            since: Some(to_wire(outage.since)),
        })
    }
}
