//! The messages of every watch stream, as changes.

use bytes::Bytes;
use polylet_model::PodUid;
use polylet_wire::common::v1::{PodRef, Reset, Synced};
use polylet_wire::known::Known;
use polylet_wire::{
    device, eviction, imagegc, notice, pleg, podconfig, prober, status, sync, volume,
};

use crate::{Change, Digest, StoreItem};

/// The response message of a watch method.
pub trait WatchWire: Known + Sized + Send + 'static {
    /// Name of the stream in health and logs.
    const STREAM: &'static str;
    /// Key of an item.
    type Key: Ord + Clone + Send + Sync + 'static;
    /// One item of the state.
    type Item: StoreItem + Digest;
    /// The key that an item carries.
    fn key(item: &Self::Item) -> Self::Key;
    /// Copies the item's bytes out of the receive buffer, which it shares with its neighbours and
    /// which may be twice as large. For large items that are stored.
    fn detach(item: Self::Item) -> Self::Item {
        item
    }
    /// Converts a change to its message.
    fn from_change(change: Change<Self::Key, Self::Item>) -> Self;
    /// Converts a message to its change; `None` for one without a change or a key. Where a newer server
    /// says what this build does not know, [`Known::unknown`] names it.
    fn into_change(self) -> Option<Change<Self::Key, Self::Item>>;
}

/// Implements `WatchWire`: the key of an item, if it has one, and the key's conversion to and from
/// its message.
macro_rules! watch_wire {
    ($response:ty, $change:path, $stream:literal, $key:ty => $item:ty,
     key $key_of:expr, to_wire $to_wire:expr, from_wire $from_wire:expr $(, detach $detach:expr)?) => {
        impl WatchWire for $response {
            const STREAM: &'static str = $stream;
            type Key = $key;
            type Item = $item;

            fn key(item: &$item) -> $key {
                let key: fn(&$item) -> Option<$key> = $key_of;
                key(item).unwrap_or_default()
            }

            $(fn detach(item: $item) -> $item {
                let detach: fn($item) -> $item = $detach;
                detach(item)
            })?

            fn from_change(change: Change<$key, $item>) -> Self {
                use $change as Wire;
                Self {
                    change: Some(match change {
                        Change::Reset => Wire::Reset(Reset {}),
                        Change::Upsert(item) => Wire::Upsert(item),
                        Change::Remove(key) => Wire::Remove($to_wire(key)),
                        Change::Synced(position) => Wire::Synced(Synced {
                            position: Some(position),
                        }),
                    }),
                }
            }

            fn into_change(self) -> Option<Change<$key, $item>> {
                use $change as Wire;
                let key: fn(&$item) -> Option<$key> = $key_of;
                match self.change? {
                    Wire::Reset(Reset {}) => Some(Change::Reset),
                    Wire::Upsert(item) => key(&item).is_some().then_some(Change::Upsert(item)),
                    Wire::Remove(key) => $from_wire(key).map(Change::Remove),
                    Wire::Synced(synced) => synced.position.map(Change::Synced),
                }
            }
        }
    };
}

fn uid_key(pod: &PodRef) -> Option<PodUid> {
    (!pod.uid.is_empty()).then(|| pod.uid.as_str().into())
}

fn uid_to_wire(uid: PodUid) -> PodRef {
    PodRef {
        uid: uid.into(),
        ..PodRef::default()
    }
}

fn uid_from_wire(pod: PodRef) -> Option<PodUid> {
    uid_key(&pod)
}

watch_wire!(podconfig::v1::WatchPodsResponse, podconfig::v1::watch_pods_response::Change,
"WatchPods", PodUid => podconfig::v1::Pod,
key |item| item.r#ref.as_ref().and_then(uid_key), to_wire uid_to_wire, from_wire uid_from_wire,
detach |item| podconfig::v1::Pod {
    manifest: Bytes::copy_from_slice(&item.manifest),
    reported_status: Bytes::copy_from_slice(&item.reported_status),
    ..item
});

watch_wire!(podconfig::v1::WatchMirrorPodsResponse, podconfig::v1::watch_mirror_pods_response::Change,
    "WatchMirrorPods", PodUid => podconfig::v1::MirrorPod,
    key |item| item.r#ref.as_ref().and_then(uid_key), to_wire uid_to_wire, from_wire uid_from_wire);

/// Namespace and name.
type ServiceItemKey = (String, String);

fn service_from_wire(key: podconfig::v1::ServiceKey) -> Option<ServiceItemKey> {
    (!key.name.is_empty()).then_some((key.namespace, key.name))
}

watch_wire!(podconfig::v1::WatchServicesResponse, podconfig::v1::watch_services_response::Change,
    "WatchServices", ServiceItemKey => podconfig::v1::Service,
    key |item| (!item.name.is_empty()).then(|| (item.namespace.clone(), item.name.clone())),
    to_wire |(namespace, name)| podconfig::v1::ServiceKey { namespace, name },
    from_wire service_from_wire);

watch_wire!(notice::v1::WatchNoticesResponse, notice::v1::watch_notices_response::Change,
    "WatchNotices", String => notice::v1::Notice,
    key |item| (!item.id.is_empty()).then(|| item.id.clone()),
    to_wire |id| notice::v1::NoticeKey { id },
    from_wire |key: notice::v1::NoticeKey| (!key.id.is_empty()).then_some(key.id));

watch_wire!(pleg::v1::WatchPodStatesResponse, pleg::v1::watch_pod_states_response::Change,
    "WatchPodStates", PodUid => pleg::v1::PodState,
    key |item| item.r#ref.as_ref().and_then(uid_key), to_wire uid_to_wire, from_wire uid_from_wire);

watch_wire!(sync::v1::WatchPodSyncResponse, sync::v1::watch_pod_sync_response::Change,
    "WatchPodSync", PodUid => sync::v1::PodSync,
    key |item| item.r#ref.as_ref().and_then(uid_key), to_wire uid_to_wire, from_wire uid_from_wire);

watch_wire!(volume::v1::WatchPodVolumesResponse, volume::v1::watch_pod_volumes_response::Change,
    "WatchPodVolumes", PodUid => volume::v1::PodVolumes,
    key |item| item.r#ref.as_ref().and_then(uid_key), to_wire uid_to_wire, from_wire uid_from_wire);

watch_wire!(device::v1::WatchResourcesResponse, device::v1::watch_resources_response::Change,
    "WatchResources", String => device::v1::DeviceResource,
    key |item| (!item.name.is_empty()).then(|| item.name.clone()),
    to_wire |name| device::v1::DeviceResourceKey { name },
    from_wire |key: device::v1::DeviceResourceKey| (!key.name.is_empty()).then_some(key.name));

watch_wire!(device::v1::WatchPodDevicesResponse, device::v1::watch_pod_devices_response::Change,
    "WatchPodDevices", PodUid => device::v1::PodDevices,
    key |item| (!item.pod_uid.is_empty()).then(|| item.pod_uid.as_str().into()),
    to_wire |uid: PodUid| device::v1::PodDevicesKey { pod_uid: uid.into() },
    from_wire |key: device::v1::PodDevicesKey| (!key.pod_uid.is_empty()).then(|| key.pod_uid.into()));

watch_wire!(status::v1::WatchPodStatusesResponse, status::v1::watch_pod_statuses_response::Change,
    "WatchPodStatuses", PodUid => status::v1::PodStatus,
    key |item| item.r#ref.as_ref().and_then(uid_key), to_wire uid_to_wire, from_wire uid_from_wire);

watch_wire!(imagegc::v1::WatchImagesResponse, imagegc::v1::watch_images_response::Change,
    "WatchImages", String => imagegc::v1::Image,
    key |item| (!item.id.is_empty()).then(|| item.id.clone()),
    to_wire |id| imagegc::v1::ImageKey { id },
    from_wire |key: imagegc::v1::ImageKey| (!key.id.is_empty()).then_some(key.id));

/// Pod uid, container id and [kind](prober::v1::ProbeKind) of a probe.
pub type ProbeItemKey = (PodUid, String, i32);

fn probe_status_key(key: prober::v1::ProbeStatusKey) -> Option<ProbeItemKey> {
    (!key.container_id.is_empty()).then(|| (key.pod_uid.into(), key.container_id, key.kind))
}

watch_wire!(prober::v1::WatchProbeStatusesResponse, prober::v1::watch_probe_statuses_response::Change,
    "WatchProbeStatuses", ProbeItemKey => prober::v1::ProbeStatus,
    key |item| item.key.clone().and_then(probe_status_key),
    to_wire |(uid, container_id, kind): ProbeItemKey|
        prober::v1::ProbeStatusKey { pod_uid: uid.into(), container_id, kind },
    from_wire probe_status_key);

/// Key of a pressure item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureItemKey {
    /// The condition of a resource (`eviction.v1.Resource`).
    Resource(i32),
    /// The eviction of the pod with this uid.
    Pod(PodUid),
}

impl Default for PressureItemKey {
    fn default() -> Self {
        PressureItemKey::Resource(0)
    }
}

fn pressure_key(item: &eviction::v1::Pressure) -> Option<PressureItemKey> {
    use eviction::v1::pressure::Fact;
    match item.fact.as_ref()? {
        Fact::Condition(condition) => Some(PressureItemKey::Resource(condition.resource)),
        Fact::Eviction(order) => order
            .pod
            .as_ref()
            .and_then(uid_key)
            .map(PressureItemKey::Pod),
    }
}

fn pressure_to_wire(key: PressureItemKey) -> eviction::v1::PressureKey {
    use eviction::v1::pressure_key::Key;
    let key = match key {
        PressureItemKey::Resource(resource) => Key::Resource(resource),
        PressureItemKey::Pod(uid) => Key::PodUid(uid.into()),
    };
    eviction::v1::PressureKey { key: Some(key) }
}

fn pressure_from_wire(key: eviction::v1::PressureKey) -> Option<PressureItemKey> {
    use eviction::v1::pressure_key::Key;
    Some(match key.key? {
        Key::Resource(resource) => PressureItemKey::Resource(resource),
        Key::PodUid(uid) => PressureItemKey::Pod(uid.into()),
    })
}

watch_wire!(eviction::v1::WatchPressureResponse, eviction::v1::watch_pressure_response::Change,
    "WatchPressure", PressureItemKey => eviction::v1::Pressure,
    key pressure_key, to_wire pressure_to_wire, from_wire pressure_from_wire);
