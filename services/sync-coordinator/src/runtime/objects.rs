//! Objects that pods refer to, from pod-config: requests and watches.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use polylet_model::Manifest;
use polylet_wire::podconfig::v1::get_object_response::State;
use polylet_wire::podconfig::v1::{
    GetObjectRequest, PodSource, WatchObjectRequest, watch_object_response,
};
use tonic::Status;

use super::RuntimeManager;
use crate::core::step::MissingObject;

/// The delay before a broken watch is restarted.
const WATCH_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The source of a pod's objects: static pods refer to files beside their manifests.
fn source(manifest: &Manifest) -> PodSource {
    if manifest.is_static() {
        PodSource::Unspecified
    } else {
        PodSource::Api
    }
}

/// An object as JSON, if it exists. Cluster-scoped objects have an empty namespace.
pub async fn get(
    manager: &RuntimeManager,
    manifest: &Manifest,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<Bytes>, Status> {
    let request = GetObjectRequest {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        source: source(manifest).into(),
    };
    let response = manager.objects.clone().get_object(request).await?;
    match response.into_inner().state {
        Some(State::Manifest(json)) => Ok(Some(json)),
        Some(State::Absent(_)) => Ok(None),
        None => Err(Status::unknown(format!(
            "{kind} {namespace}/{name} has a state that this build does not know; pod-config may be newer"
        ))),
    }
}

/// Waits until an object exists, or has changed if it lacks a key. Never gives up.
pub async fn wait_available(manager: &Rc<RuntimeManager>, missing: &MissingObject) {
    let source = if missing.from_api_server {
        PodSource::Api
    } else {
        PodSource::Unspecified
    };
    let request = WatchObjectRequest {
        kind: missing.kind.to_owned(),
        namespace: missing.namespace.clone(),
        name: missing.name.clone(),
        source: source.into(),
    };
    loop {
        let response = manager.objects.clone().watch_object(request.clone()).await;
        if let Ok(response) = response {
            let mut stream = response.into_inner();
            // An object that lacks a key exists already: its first state is the known one.
            let mut skip = missing.exists;
            while let Ok(Some(response)) = stream.message().await {
                match response.state {
                    Some(watch_object_response::State::Manifest(_)) if skip => skip = false,
                    Some(watch_object_response::State::Manifest(_)) => return,
                    Some(watch_object_response::State::Absent(_)) => skip = false,
                    _ => {}
                }
            }
        }
        tokio::time::sleep(WATCH_RETRY_DELAY).await;
    }
}
