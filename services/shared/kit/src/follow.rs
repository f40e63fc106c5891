//! Streams of other services, followed across reconnects ([`polylet_watch`]): one module per
//! service, named like its wire package. A service that follows a stream declares the call in its
//! descriptor.

use futures::Stream;
use polylet_watch::{Update, Value, WatchWire};

use crate::Ctx;
use crate::channel::MAX_MESSAGE_SIZE;

/// Differences of a keyed state against its previous version.
type Updates<W> = Update<<W as WatchWire>::Key, <W as WatchWire>::Item>;

/// Defines a function that follows a keyed stream: its name, the peer, and the method.
macro_rules! keyed_stream {
    ($(#[$doc:meta])* $name:ident, $peer:literal, $client:ident, $method:ident($request:ident) -> $response:ty) => {
        $(#[$doc])*
        pub fn $name(ctx: &Ctx) -> impl Stream<Item = Updates<$response>> + Unpin + Send + use<> {
            let peer = ctx.peer($peer);
            let client = $client::new(peer.channel()).max_decoding_message_size(MAX_MESSAGE_SIZE);
            polylet_watch::follow(peer, move |resume_after| {
                let mut client = client.clone();
                async move { client.$method($request { resume_after }).await }
            })
        }
    };
}

/// The same for a stream of a single value.
macro_rules! value_stream {
    ($(#[$doc:meta])* $name:ident, $peer:literal, $client:ident, $method:ident($request:ident) -> $response:ty) => {
        $(#[$doc])*
        pub fn $name(ctx: &Ctx) -> impl Stream<Item = Value<$response>> + Unpin + Send + use<> {
            let peer = ctx.peer($peer);
            let client = $client::new(peer.channel()).max_decoding_message_size(MAX_MESSAGE_SIZE);
            polylet_watch::follow_value(peer, move || {
                let mut client = client.clone();
                async move { client.$method($request {}).await }
            })
        }
    };
}

/// Streams of pod-config.
pub mod podconfig {
    use prost_types::FieldMask;

    use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
    use polylet_wire::podconfig::v1::pod_config_service_client::PodConfigServiceClient;
    use polylet_wire::podconfig::v1::{
        PodSource, WatchMirrorPodsRequest, WatchMirrorPodsResponse, WatchNodeRequest,
        WatchNodeResponse, WatchPodsRequest, WatchPodsResponse, WatchServicesRequest,
        WatchServicesResponse,
    };

    use super::*;

    /// Every source of pods.
    pub const SOURCES: [PodSource; 3] = [PodSource::File, PodSource::Http, PodSource::Api];

    /// The pods of one source.
    pub fn pods(
        ctx: &Ctx,
        source: PodSource,
    ) -> impl Stream<Item = Updates<WatchPodsResponse>> + Unpin + Send + use<> {
        watch_pods(ctx, source, false, &[])
    }

    /// The same; API pods come with their status in the cluster.
    pub fn pods_with_status(
        ctx: &Ctx,
        source: PodSource,
    ) -> impl Stream<Item = Updates<WatchPodsResponse>> + Unpin + Send + use<> {
        watch_pods(ctx, source, true, &[])
    }

    /// The same with a part of each manifest: the fields that the paths select, such as
    /// `spec.containers.image`, and the pod's uid, namespace and name.
    pub fn pods_masked(
        ctx: &Ctx,
        source: PodSource,
        paths: &'static [&'static str],
    ) -> impl Stream<Item = Updates<WatchPodsResponse>> + Unpin + Send + use<> {
        watch_pods(ctx, source, false, paths)
    }

    fn watch_pods(
        ctx: &Ctx,
        source: PodSource,
        include_status: bool,
        paths: &'static [&'static str],
    ) -> impl Stream<Item = Updates<WatchPodsResponse>> + Unpin + Send + use<> {
        let peer = ctx.peer("pod-config");
        let client =
            PodConfigServiceClient::new(peer.channel()).max_decoding_message_size(MAX_MESSAGE_SIZE);
        let stream = match source {
            PodSource::File => "WatchPods/file",
            PodSource::Http => "WatchPods/http",
            PodSource::Api | PodSource::Unspecified => "WatchPods/api",
        };
        polylet_watch::follow_named(peer, stream, move |resume_after| {
            let mut client = client.clone();
            let request = WatchPodsRequest {
                resume_after,
                source: source.into(),
                include_status,
                manifest_mask: (!paths.is_empty()).then(|| FieldMask {
                    paths: paths.iter().map(|path| (*path).to_owned()).collect(),
                }),
            };
            async move { client.watch_pods(request).await }
        })
    }

    keyed_stream! {
        /// Mirror pods in the cluster.
        mirrors, "pod-config", PodConfigServiceClient,
        watch_mirror_pods(WatchMirrorPodsRequest) -> WatchMirrorPodsResponse
    }

    keyed_stream! {
        /// Services that have an address.
        services, "pod-config", ObjectServiceClient,
        watch_services(WatchServicesRequest) -> WatchServicesResponse
    }

    value_stream! {
        /// This node's Node object.
        node, "pod-config", PodConfigServiceClient,
        watch_node(WatchNodeRequest) -> WatchNodeResponse
    }
}

/// Streams of pleg.
pub mod pleg {
    use polylet_wire::pleg::v1::pleg_service_client::PlegServiceClient;
    use polylet_wire::pleg::v1::{
        WatchPodStatesRequest, WatchPodStatesResponse, WatchRuntimeRequest, WatchRuntimeResponse,
    };

    use super::*;

    keyed_stream! {
        /// Sandboxes and containers of each pod in the runtime.
        pod_states, "pleg", PlegServiceClient,
        watch_pod_states(WatchPodStatesRequest) -> WatchPodStatesResponse
    }

    value_stream! {
        /// Health and properties of the runtime.
        runtime, "pleg", PlegServiceClient,
        watch_runtime(WatchRuntimeRequest) -> WatchRuntimeResponse
    }
}

/// Streams of prober.
pub mod prober {
    use polylet_wire::prober::v1::prober_service_client::ProberServiceClient;
    use polylet_wire::prober::v1::{WatchProbeStatusesRequest, WatchProbeStatusesResponse};

    use super::*;

    keyed_stream! {
        /// Results of containers' probes.
        probe_statuses, "prober", ProberServiceClient,
        watch_probe_statuses(WatchProbeStatusesRequest) -> WatchProbeStatusesResponse
    }
}

/// Streams of volume-manager.
pub mod volume {
    use polylet_wire::volume::v1::volume_service_client::VolumeServiceClient;
    use polylet_wire::volume::v1::{
        WatchClaimSizesRequest, WatchClaimSizesResponse, WatchDriversRequest, WatchDriversResponse,
        WatchPodVolumesRequest, WatchPodVolumesResponse, WatchVolumesInUseRequest,
        WatchVolumesInUseResponse,
    };

    use super::*;

    keyed_stream! {
        /// State of each pod's volumes.
        pod_volumes, "volume-manager", VolumeServiceClient,
        watch_pod_volumes(WatchPodVolumesRequest) -> WatchPodVolumesResponse
    }

    value_stream! {
        /// CSI drivers on this node.
        drivers, "volume-manager", VolumeServiceClient,
        watch_drivers(WatchDriversRequest) -> WatchDriversResponse
    }

    value_stream! {
        /// Claims whose volumes are being expanded on this node.
        claim_sizes, "volume-manager", VolumeServiceClient,
        watch_claim_sizes(WatchClaimSizesRequest) -> WatchClaimSizesResponse
    }

    value_stream! {
        /// Attachable volumes that this node uses.
        in_use, "volume-manager", VolumeServiceClient,
        watch_volumes_in_use(WatchVolumesInUseRequest) -> WatchVolumesInUseResponse
    }
}

/// Streams of device-manager.
pub mod device {
    use polylet_wire::device::v1::device_service_client::DeviceServiceClient;
    use polylet_wire::device::v1::{
        WatchPodDevicesRequest, WatchPodDevicesResponse, WatchResourcesRequest,
        WatchResourcesResponse,
    };

    use super::*;

    keyed_stream! {
        /// Resources of device plugins.
        resources, "device-manager", DeviceServiceClient,
        watch_resources(WatchResourcesRequest) -> WatchResourcesResponse
    }

    keyed_stream! {
        /// The devices that pods have.
        pod_devices, "device-manager", DeviceServiceClient,
        watch_pod_devices(WatchPodDevicesRequest) -> WatchPodDevicesResponse
    }
}

/// Streams of eviction.
pub mod eviction {
    use polylet_wire::eviction::v1::eviction_service_client::EvictionServiceClient;
    use polylet_wire::eviction::v1::{WatchPressureRequest, WatchPressureResponse};

    use super::*;

    keyed_stream! {
        /// Pressure conditions of the node, and the pods to evict.
        pressure, "eviction", EvictionServiceClient,
        watch_pressure(WatchPressureRequest) -> WatchPressureResponse
    }
}

/// Streams of sync-coordinator.
pub mod sync {
    use polylet_wire::sync::v1::sync_service_client::SyncServiceClient;
    use polylet_wire::sync::v1::{WatchPodSyncRequest, WatchPodSyncResponse};

    use super::*;

    keyed_stream! {
        /// Sync progress of each pod.
        pod_sync, "sync-coordinator", SyncServiceClient,
        watch_pod_sync(WatchPodSyncRequest) -> WatchPodSyncResponse
    }
}

/// Streams of image-gc.
pub mod imagegc {
    use polylet_wire::imagegc::v1::image_gc_service_client::ImageGcServiceClient;
    use polylet_wire::imagegc::v1::{WatchImagesRequest, WatchImagesResponse};

    use super::*;

    keyed_stream! {
        /// Images on the node.
        images, "image-gc", ImageGcServiceClient,
        watch_images(WatchImagesRequest) -> WatchImagesResponse
    }
}

/// Notices, which every service serves.
pub mod notice {
    use polylet_wire::notice::v1::notice_service_client::NoticeServiceClient;
    use polylet_wire::notice::v1::{Notice, WatchNoticesRequest};

    use super::*;

    /// The notices of one service; some may come twice.
    pub fn notices(
        ctx: &Ctx,
        service: &'static str,
    ) -> impl Stream<Item = Notice> + Unpin + Send + use<> {
        let peer = ctx.peer(service);
        let client =
            NoticeServiceClient::new(peer.channel()).max_decoding_message_size(MAX_MESSAGE_SIZE);
        polylet_watch::follow_log(peer, move |resume_after| {
            let mut client = client.clone();
            async move {
                let request = WatchNoticesRequest { resume_after };
                client.watch_notices(request).await
            }
        })
    }
}
