//! The decisions of services, fed with the messages of their peers. An input is a sequence of frames,
//! each a message or a manifest; the state between them is the service's own.

pub(super) mod coordinator;
pub(super) mod device_manager;
pub(super) mod eviction;
pub(super) mod pleg;
pub(super) mod prober;
pub(super) mod requests;
pub(super) mod status_reporter;

use polylet_model::PodUid;
use polylet_watch::Update;
use polylet_wire::podconfig::v1 as podconfig;

use super::manifests::wire_pod;
use crate::input::Frame;

/// The UIDs of pods: frames choose between a few, so that they concern the same pods.
const UIDS: [&str; 3] = ["u1", "u2", "u3"];

const SOURCES: [podconfig::PodSource; 3] = [
    podconfig::PodSource::Api,
    podconfig::PodSource::File,
    podconfig::PodSource::Http,
];

/// The pod that a frame concerns.
fn uid(frame: &Frame<'_>) -> PodUid {
    let index = usize::from(frame.kind >> 6) % UIDS.len();
    UIDS.get(index).copied().unwrap_or_default().into()
}

/// A desired pod with this manifest.
fn pod_update(frame: &Frame<'_>, source: podconfig::PodSource) -> Update<PodUid, podconfig::Pod> {
    let uid = uid(frame);
    let pod = wire_pod(&uid, source, frame.content);
    Update::Upsert(uid, pod)
}

/// An update of a stream without an item.
fn stream_update<K, V>(frame: &Frame<'_>, key: K) -> Update<K, V> {
    match frame.content.first() {
        None => Update::Synced,
        Some(0) => Update::Stale("unavailable".to_owned()),
        Some(_) => Update::Remove(key),
    }
}
