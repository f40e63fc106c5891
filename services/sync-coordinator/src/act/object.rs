//! Objects that pods refer to: asked for in the name of the pod's source, and waited for.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use polylet_model::Manifest;
use polylet_wire::podconfig::v1::get_object_response::State;
use polylet_wire::podconfig::v1::{
    GetObjectRequest, PodSource, WatchObjectRequest, watch_object_response,
};
use tonic::Status;

use super::Hands;
use crate::core::learn::Lacking;

/// The pause before a watch that broke is begun anew.
const PAUSE: Duration = Duration::from_secs(1);

/// Whose objects a pod refers to.
fn source(manifest: &Manifest) -> PodSource {
    if manifest.is_static() {
        PodSource::Unspecified
    } else {
        PodSource::Api
    }
}

/// An object as JSON, if there is one. One without a namespace is of the whole cluster.
pub async fn get(
    hands: &Hands,
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
    let answer = hands.objects.clone().get_object(request).await?;
    Ok(match answer.into_inner().state {
        Some(State::Manifest(json)) => Some(json),
        _ => None,
    })
}

/// Waits until an object is there, or is another one than it was; for as long as nobody gives up.
pub async fn appears(hands: &Rc<Hands>, lacking: &Lacking) {
    let source = if lacking.of_cluster {
        PodSource::Api
    } else {
        PodSource::Unspecified
    };
    let request = WatchObjectRequest {
        kind: lacking.kind.to_owned(),
        namespace: lacking.namespace.clone(),
        name: lacking.name.clone(),
        source: source.into(),
    };
    loop {
        if let Ok(answer) = hands.objects.clone().watch_object(request.clone()).await {
            let mut stream = answer.into_inner();
            // With the key missing it is there already: the next word of it counts.
            let mut old = lacking.there;
            while let Ok(Some(said)) = stream.message().await {
                match said.state {
                    Some(watch_object_response::State::Manifest(_)) if old => old = false,
                    Some(watch_object_response::State::Manifest(_)) => return,
                    Some(watch_object_response::State::Absent(_)) => old = false,
                    _ => {}
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}
