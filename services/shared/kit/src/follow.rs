//! What other services say, followed for ever ([`polylet_watch`]): one room per service, called as
//! its package on the wire is. A service that follows one declares the call in its manifest.

use futures::Stream;
use polylet_watch::{Update, Value, WatchWire};

use crate::Ctx;

/// Real differences of a keyed state against what was told before.
type Updates<W> = Update<<W as WatchWire>::Key, <W as WatchWire>::Item>;

/// A function that follows one keyed stream: its name, whom it asks, and the method.
macro_rules! followed {
    ($(#[$about:meta])* $name:ident, $peer:literal, $client:ty, $method:ident($request:ident) -> $response:ty) => {
        $(#[$about])*
        pub fn $name(ctx: &Ctx) -> impl Stream<Item = Updates<$response>> + Unpin + Send + use<> {
            let peer = ctx.peer($peer);
            let client = <$client>::new(peer.channel());
            polylet_watch::follow(peer, move |resume_after| {
                let mut client = client.clone();
                async move { client.$method($request { resume_after }).await }
            })
        }
    };
}

/// Pod-config.
pub mod podconfig {
    use polylet_wire::podconfig::v1::pod_config_service_client::PodConfigServiceClient;
    use polylet_wire::podconfig::v1::{PodSource, WatchPodsRequest, WatchPodsResponse};

    use super::*;

    /// Every source of pods.
    pub const SOURCES: [PodSource; 3] = [PodSource::File, PodSource::Http, PodSource::Api];

    /// The pods of one source.
    pub fn pods(
        ctx: &Ctx,
        source: PodSource,
    ) -> impl Stream<Item = Updates<WatchPodsResponse>> + Unpin + Send + use<> {
        let peer = ctx.peer("pod-config");
        let client = PodConfigServiceClient::new(peer.channel());
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
            };
            async move { client.watch_pods(request).await }
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
        let client = PlegServiceClient::new(peer.channel());
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
    use polylet_wire::volume::v1::{WatchPodVolumesRequest, WatchPodVolumesResponse};

    use super::*;

    followed! {
        /// Where each pod's volumes stand.
        pod_volumes, "volume-manager", VolumeServiceClient<crate::Channel>,
        watch_pod_volumes(WatchPodVolumesRequest) -> WatchPodVolumesResponse
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
