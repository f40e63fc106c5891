//! The messages of every watch stream, as changes.

use bytes::Bytes;
use polylet_wire::common::v1::{PodRef, Reset, Synced};
use polylet_wire::{eviction, imagegc, notice, pleg, podconfig, prober, status, sync, volume};

use crate::{Digest, Position};

/// One message of a watch stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<K, V> {
    /// A snapshot follows.
    Reset,
    /// The key's state, complete in itself.
    Upsert(V),
    /// The key is gone.
    Remove(K),
    /// The watcher holds everything as of this position.
    Synced(Position),
}

/// The response message of a watch method.
pub trait WatchWire: Sized + Send + 'static {
    /// The stream's name, for health and logs.
    const STREAM: &'static str;
    /// What the state is keyed by.
    type Key: Ord + Clone + Send + Sync + 'static;
    /// One item of the state.
    type Item: Clone + PartialEq + Digest + Send + Sync + 'static;
    /// The key that an item carries.
    fn key(item: &Self::Item) -> Self::Key;
    /// The item in memory of its own: as it came it shares a buffer with its neighbours, which may be
    /// twice as large. For items that may be large, and wait for others.
    fn apart(item: Self::Item) -> Self::Item {
        item
    }
    /// Into the message.
    fn wrap(change: Change<Self::Key, Self::Item>) -> Self;
    /// Out of the message; `None` for one without a change or key (a newer server's, perhaps).
    fn unwrap(self) -> Option<Change<Self::Key, Self::Item>>;
}

/// One `WatchWire`: how an item tells its key (if it does), and the key's message to and fro.
macro_rules! watch_wire {
    ($response:ty, $change:path, $stream:literal, $key:ty => $item:ty,
     of $of:expr, out $out:expr, back $back:expr $(, apart $apart:expr)?) => {
        impl WatchWire for $response {
            const STREAM: &'static str = $stream;
            type Key = $key;
            type Item = $item;

            fn key(item: &$item) -> $key {
                let of: fn(&$item) -> Option<$key> = $of;
                of(item).unwrap_or_default()
            }

            $(fn apart(item: $item) -> $item {
                let apart: fn($item) -> $item = $apart;
                apart(item)
            })?

            fn wrap(change: Change<$key, $item>) -> Self {
                use $change as Wire;
                Self {
                    change: Some(match change {
                        Change::Reset => Wire::Reset(Reset {}),
                        Change::Upsert(item) => Wire::Upsert(item),
                        Change::Remove(key) => Wire::Remove($out(key)),
                        Change::Synced(position) => Wire::Synced(Synced {
                            position: Some(position),
                        }),
                    }),
                }
            }

            fn unwrap(self) -> Option<Change<$key, $item>> {
                use $change as Wire;
                let of: fn(&$item) -> Option<$key> = $of;
                match self.change? {
                    Wire::Reset(Reset {}) => Some(Change::Reset),
                    Wire::Upsert(item) => of(&item).is_some().then_some(Change::Upsert(item)),
                    Wire::Remove(key) => $back(key).map(Change::Remove),
                    Wire::Synced(synced) => synced.position.map(Change::Synced),
                }
            }
        }
    };
}

fn uid_of(pod: &PodRef) -> Option<String> {
    (!pod.uid.is_empty()).then(|| pod.uid.clone())
}

fn uid_out(uid: String) -> PodRef {
    PodRef {
        uid,
        ..PodRef::default()
    }
}

fn uid_back(pod: PodRef) -> Option<String> {
    uid_of(&pod)
}

watch_wire!(podconfig::v1::WatchPodsResponse, podconfig::v1::watch_pods_response::Change,
"WatchPods", String => podconfig::v1::Pod,
of |item| item.r#ref.as_ref().and_then(uid_of), out uid_out, back uid_back,
apart |item| podconfig::v1::Pod {
    manifest: Bytes::copy_from_slice(&item.manifest),
    reported_status: Bytes::copy_from_slice(&item.reported_status),
    ..item
});

watch_wire!(podconfig::v1::WatchMirrorsResponse, podconfig::v1::watch_mirrors_response::Change,
    "WatchMirrors", String => podconfig::v1::Mirror,
    of |item| item.r#ref.as_ref().and_then(uid_of), out uid_out, back uid_back);

/// Namespace and name.
type ServiceKey = (String, String);

fn service_back(key: podconfig::v1::ServiceKey) -> Option<ServiceKey> {
    (!key.name.is_empty()).then_some((key.namespace, key.name))
}

watch_wire!(podconfig::v1::WatchServicesResponse, podconfig::v1::watch_services_response::Change,
    "WatchServices", ServiceKey => podconfig::v1::Service,
    of |item| (!item.name.is_empty()).then(|| (item.namespace.clone(), item.name.clone())),
    out |(namespace, name)| podconfig::v1::ServiceKey { namespace, name },
    back service_back);

watch_wire!(notice::v1::WatchNoticesResponse, notice::v1::watch_notices_response::Change,
    "WatchNotices", String => notice::v1::Notice,
    of |item| (!item.id.is_empty()).then(|| item.id.clone()),
    out |id| notice::v1::NoticeKey { id },
    back |key: notice::v1::NoticeKey| (!key.id.is_empty()).then_some(key.id));

watch_wire!(pleg::v1::WatchPodStatesResponse, pleg::v1::watch_pod_states_response::Change,
    "WatchPodStates", String => pleg::v1::PodState,
    of |item| item.r#ref.as_ref().and_then(uid_of), out uid_out, back uid_back);

watch_wire!(sync::v1::WatchPodSyncResponse, sync::v1::watch_pod_sync_response::Change,
    "WatchPodSync", String => sync::v1::PodSync,
    of |item| item.r#ref.as_ref().and_then(uid_of), out uid_out, back uid_back);

watch_wire!(volume::v1::WatchPodVolumesResponse, volume::v1::watch_pod_volumes_response::Change,
    "WatchPodVolumes", String => volume::v1::PodVolumes,
    of |item| item.r#ref.as_ref().and_then(uid_of), out uid_out, back uid_back);

watch_wire!(status::v1::WatchPodStatusesResponse, status::v1::watch_pod_statuses_response::Change,
    "WatchPodStatuses", String => status::v1::PodStatus,
    of |item| item.r#ref.as_ref().and_then(uid_of), out uid_out, back uid_back);

watch_wire!(imagegc::v1::WatchImagesResponse, imagegc::v1::watch_images_response::Change,
    "WatchImages", String => imagegc::v1::Image,
    of |item| (!item.id.is_empty()).then(|| item.id.clone()),
    out |id| imagegc::v1::ImageKey { id },
    back |key: imagegc::v1::ImageKey| (!key.id.is_empty()).then_some(key.id));

/// Pod uid, container id, probe kind.
type VerdictKey = (String, String, i32);

fn verdict_key(key: prober::v1::VerdictKey) -> Option<VerdictKey> {
    (!key.container_id.is_empty()).then_some((key.pod_uid, key.container_id, key.kind))
}

watch_wire!(prober::v1::WatchVerdictsResponse, prober::v1::watch_verdicts_response::Change,
    "WatchVerdicts", VerdictKey => prober::v1::Verdict,
    of |item| item.key.clone().and_then(verdict_key),
    out |(pod_uid, container_id, kind)| prober::v1::VerdictKey { pod_uid, container_id, kind },
    back verdict_key);

/// What pressure facts are keyed by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureKeyOwned {
    /// The condition of a resource (`eviction.v1.Resource`).
    Resource(i32),
    /// The order to evict the pod of this uid.
    Pod(String),
}

impl Default for PressureKeyOwned {
    fn default() -> Self {
        PressureKeyOwned::Resource(0)
    }
}

fn pressure_of(item: &eviction::v1::Pressure) -> Option<PressureKeyOwned> {
    use eviction::v1::pressure::Fact;
    match item.fact.as_ref()? {
        Fact::Condition(condition) => Some(PressureKeyOwned::Resource(condition.resource)),
        Fact::Order(order) => order
            .pod
            .as_ref()
            .and_then(uid_of)
            .map(PressureKeyOwned::Pod),
    }
}

fn pressure_out(key: PressureKeyOwned) -> eviction::v1::PressureKey {
    use eviction::v1::pressure_key::Key;
    let key = match key {
        PressureKeyOwned::Resource(resource) => Key::Resource(resource),
        PressureKeyOwned::Pod(uid) => Key::PodUid(uid),
    };
    eviction::v1::PressureKey { key: Some(key) }
}

fn pressure_back(key: eviction::v1::PressureKey) -> Option<PressureKeyOwned> {
    use eviction::v1::pressure_key::Key;
    Some(match key.key? {
        Key::Resource(resource) => PressureKeyOwned::Resource(resource),
        Key::PodUid(uid) => PressureKeyOwned::Pod(uid),
    })
}

watch_wire!(eviction::v1::WatchPressureResponse, eviction::v1::watch_pressure_response::Change,
    "WatchPressure", PressureKeyOwned => eviction::v1::Pressure,
    of pressure_of, out pressure_out, back pressure_back);
