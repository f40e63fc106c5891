//! What other services say, followed for ever ([`polylet_watch`]): one room per service, called as
//! its package on the wire is. A service that follows one declares the call in its manifest.

use futures::Stream;
use polylet_watch::{Update, Value, WatchWire};

use crate::Ctx;
use crate::channel::LARGEST_MESSAGE;

/// Real differences of a keyed state against what was told before.
type Updates<W> = Update<<W as WatchWire>::Key, <W as WatchWire>::Item>;

/// A function that follows one keyed stream: its name, whom it asks, and the method.
macro_rules! followed {
    ($(#[$about:meta])* $name:ident, $peer:literal, $client:ty, $method:ident($request:ident) -> $response:ty) => {
        $(#[$about])*
        pub fn $name(ctx: &Ctx) -> impl Stream<Item = Updates<$response>> + Unpin + Send + use<> {
            let peer = ctx.peer($peer);
            let client = <$client>::new(peer.channel())
                .max_decoding_message_size(LARGEST_MESSAGE);
            polylet_watch::follow(peer, move |resume_after| {
                let mut client = client.clone();
                async move { client.$method($request { resume_after }).await }
            })
        }
    };
}

/// Pod-config.
pub mod podconfig {
    use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
    use polylet_wire::podconfig::v1::pod_config_service_client::PodConfigServiceClient;
    use polylet_wire::podconfig::v1::{
        PodSource, WatchMirrorsRequest, WatchMirrorsResponse, WatchNodeRequest, WatchNodeResponse,
        WatchPodsRequest, WatchPodsResponse, WatchServicesRequest, WatchServicesResponse,
    };

    use super::*;

    /// Every source of pods.
    pub const SOURCES: [PodSource; 3] = [PodSource::File, PodSource::Http, PodSource::Api];

    /// The pods of one source.
    pub fn pods(
        ctx: &Ctx,
        source: PodSource,
    ) -> impl Stream<Item = Updates<WatchPodsResponse>> + Unpin + Send + use<> {
        pods_of(ctx, source, false)
    }

    /// The same; API pods with the status that the cluster holds.
    pub fn pods_with_status(
        ctx: &Ctx,
        source: PodSource,
    ) -> impl Stream<Item = Updates<WatchPodsResponse>> + Unpin + Send + use<> {
        pods_of(ctx, source, true)
    }

    fn pods_of(
        ctx: &Ctx,
        source: PodSource,
        include_status: bool,
    ) -> impl Stream<Item = Updates<WatchPodsResponse>> + Unpin + Send + use<> {
        let peer = ctx.peer("pod-config");
        let client =
            PodConfigServiceClient::new(peer.channel()).max_decoding_message_size(LARGEST_MESSAGE);
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
            };
            async move { client.watch_pods(request).await }
        })
    }

    followed! {
        /// The static pods' mirrors in the cluster.
        mirrors, "pod-config", PodConfigServiceClient<crate::Channel>,
        watch_mirrors(WatchMirrorsRequest) -> WatchMirrorsResponse
    }

    followed! {
        /// The Services that have an address.
        services, "pod-config", ObjectServiceClient<crate::Channel>,
        watch_services(WatchServicesRequest) -> WatchServicesResponse
    }

    /// This node's object in the cluster.
    pub fn node(ctx: &Ctx) -> impl Stream<Item = Value<WatchNodeResponse>> + Unpin + Send + use<> {
        let peer = ctx.peer("pod-config");
        let client =
            PodConfigServiceClient::new(peer.channel()).max_decoding_message_size(LARGEST_MESSAGE);
        polylet_watch::follow_value(peer, move || {
            let mut client = client.clone();
            async move { client.watch_node(WatchNodeRequest {}).await }
        })
    }
}

/// Pleg.
pub mod pleg {
    use polylet_wire::pleg::v1::pleg_service_client::PlegServiceClient;
    use polylet_wire::pleg::v1::{WatchPodStatesRequest, WatchPodStatesResponse};
    use polylet_wire::pleg::v1::{WatchRuntimeRequest, WatchRuntimeResponse};

    use super::*;

    followed! {
        /// What the runtime holds of each pod.
        pod_states, "pleg", PlegServiceClient<crate::Channel>,
        watch_pod_states(WatchPodStatesRequest) -> WatchPodStatesResponse
    }

    /// The runtime itself.
    pub fn runtime(
        ctx: &Ctx,
    ) -> impl Stream<Item = Value<WatchRuntimeResponse>> + Unpin + Send + use<> {
        let peer = ctx.peer("pleg");
        let client =
            PlegServiceClient::new(peer.channel()).max_decoding_message_size(LARGEST_MESSAGE);
        polylet_watch::follow_value(peer, move || {
            let mut client = client.clone();
            async move { client.watch_runtime(WatchRuntimeRequest {}).await }
        })
    }
}

/// Prober.
pub mod prober {
    use polylet_wire::prober::v1::prober_service_client::ProberServiceClient;
    use polylet_wire::prober::v1::{WatchVerdictsRequest, WatchVerdictsResponse};

    use super::*;

    followed! {
        /// Whether containers are well.
        verdicts, "prober", ProberServiceClient<crate::Channel>,
        watch_verdicts(WatchVerdictsRequest) -> WatchVerdictsResponse
    }
}

/// Volume-manager.
pub mod volume {
    use polylet_wire::volume::v1::volume_service_client::VolumeServiceClient;
    use polylet_wire::volume::v1::{
        WatchClaimSizesRequest, WatchClaimSizesResponse, WatchDriversRequest, WatchDriversResponse,
        WatchPodVolumesRequest, WatchPodVolumesResponse, WatchVolumesInUseRequest,
        WatchVolumesInUseResponse,
    };

    use super::*;

    followed! {
        /// Where each pod's volumes stand.
        pod_volumes, "volume-manager", VolumeServiceClient<crate::Channel>,
        watch_pod_volumes(WatchPodVolumesRequest) -> WatchPodVolumesResponse
    }

    /// The CSI drivers on this node.
    pub fn drivers(
        ctx: &Ctx,
    ) -> impl Stream<Item = Value<WatchDriversResponse>> + Unpin + Send + use<> {
        let peer = ctx.peer("volume-manager");
        let client =
            VolumeServiceClient::new(peer.channel()).max_decoding_message_size(LARGEST_MESSAGE);
        polylet_watch::follow_value(peer, move || {
            let mut client = client.clone();
            async move { client.watch_drivers(WatchDriversRequest {}).await }
        })
    }

    /// The claims whose volumes are made larger here.
    pub fn claim_sizes(
        ctx: &Ctx,
    ) -> impl Stream<Item = Value<WatchClaimSizesResponse>> + Unpin + Send + use<> {
        let peer = ctx.peer("volume-manager");
        let client = VolumeServiceClient::new(peer.channel());
        polylet_watch::follow_value(peer, move || {
            let mut client = client.clone();
            async move { client.watch_claim_sizes(WatchClaimSizesRequest {}).await }
        })
    }

    /// The attachable volumes that this node uses.
    pub fn in_use(
        ctx: &Ctx,
    ) -> impl Stream<Item = Value<WatchVolumesInUseResponse>> + Unpin + Send + use<> {
        let peer = ctx.peer("volume-manager");
        let client =
            VolumeServiceClient::new(peer.channel()).max_decoding_message_size(LARGEST_MESSAGE);
        polylet_watch::follow_value(peer, move || {
            let mut client = client.clone();
            async move {
                let request = WatchVolumesInUseRequest {};
                client.watch_volumes_in_use(request).await
            }
        })
    }
}

/// Eviction.
pub mod eviction {
    use polylet_wire::eviction::v1::eviction_service_client::EvictionServiceClient;
    use polylet_wire::eviction::v1::{WatchPressureRequest, WatchPressureResponse};

    use super::*;

    followed! {
        /// Whether the node is well, and which pods must go.
        pressure, "eviction", EvictionServiceClient<crate::Channel>,
        watch_pressure(WatchPressureRequest) -> WatchPressureResponse
    }
}

/// Sync-coordinator.
pub mod sync {
    use polylet_wire::sync::v1::sync_service_client::SyncServiceClient;
    use polylet_wire::sync::v1::{WatchPodSyncRequest, WatchPodSyncResponse};

    use super::*;

    followed! {
        /// How far each pod has come.
        pod_sync, "sync-coordinator", SyncServiceClient<crate::Channel>,
        watch_pod_sync(WatchPodSyncRequest) -> WatchPodSyncResponse
    }
}

/// Image-gc.
pub mod imagegc {
    use polylet_wire::imagegc::v1::image_gc_service_client::ImageGcServiceClient;
    use polylet_wire::imagegc::v1::{WatchImagesRequest, WatchImagesResponse};

    use super::*;

    followed! {
        /// The images that the node has.
        images, "image-gc", ImageGcServiceClient<crate::Channel>,
        watch_images(WatchImagesRequest) -> WatchImagesResponse
    }
}

/// What services have to say to people.
pub mod notice {
    use polylet_wire::notice::v1::notice_service_client::NoticeServiceClient;
    use polylet_wire::notice::v1::{WatchNoticesRequest, WatchNoticesResponse};

    use super::*;

    /// The notices of one service.
    pub fn notices(
        ctx: &Ctx,
        service: &'static str,
    ) -> impl Stream<Item = Updates<WatchNoticesResponse>> + Unpin + Send + use<> {
        let peer = ctx.peer(service);
        let client =
            NoticeServiceClient::new(peer.channel()).max_decoding_message_size(LARGEST_MESSAGE);
        polylet_watch::follow(peer, move |resume_after| {
            let mut client = client.clone();
            async move {
                let request = WatchNoticesRequest { resume_after };
                client.watch_notices(request).await
            }
        })
    }
}
