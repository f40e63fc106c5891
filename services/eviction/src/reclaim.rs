//! Frees disk space before a pod is evicted: first the dead containers of finished pods, which
//! sync-coordinator removes when it sees the request in the pressure stream, then unused images.

use std::time::Duration;

use polylet_kit::Ctx;
use polylet_wire::imagegc::v1::ReclaimRequest;
use polylet_wire::imagegc::v1::image_gc_service_client::ImageGcServiceClient;

use crate::core::signal::Observations;
use crate::core::threshold::Threshold;

/// How long the removal of dead containers is waited for.
pub(crate) const CONTAINERS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the removal of images may take.
const IMAGES_TIMEOUT: Duration = Duration::from_secs(120);
/// The reason of the health condition.
const NOT_RECLAIMED: &str = "ImagesNotReclaimed";

/// A reclaim in progress and its cause.
pub(crate) struct Reclaim {
    pub(crate) threshold: Threshold,
    /// The observation that led to it.
    pub(crate) observations: Observations,
    pub(crate) stage: ReclaimStage,
}

/// What is being removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReclaimStage {
    Containers,
    Images,
}

/// Removes all unused images, as upstream; those that only finished pods name are unused.
pub(crate) fn images(
    ctx: &Ctx,
    finished_pod_uids: Vec<String>,
) -> impl Future<Output = ()> + use<> {
    let channel = ctx.peer("image-gc").channel();
    let conditions = ctx.conditions();
    async move {
        let mut request = tonic::Request::new(ReclaimRequest {
            bytes_to_free: 0,
            ignore_minimum_age: false,
            cause: None,
            finished_pod_uids,
        });
        request.set_timeout(IMAGES_TIMEOUT);
        let call = async { ImageGcServiceClient::new(channel).reclaim(request).await };
        let response = tokio::time::timeout(IMAGES_TIMEOUT, call).await;
        let error = match response {
            Ok(Ok(response)) => {
                let response = response.into_inner();
                tracing::info!(
                    bytes = response.bytes_freed,
                    images = response.images_removed,
                    "reclaimed image space"
                );
                conditions.clear(NOT_RECLAIMED, "");
                return;
            }
            Ok(Err(status)) => status.message().to_owned(),
            Err(_) => format!("no answer within {} s", IMAGES_TIMEOUT.as_secs()),
        };
        conditions.set(NOT_RECLAIMED, "", error);
    }
}
