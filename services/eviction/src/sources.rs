//! What eviction follows.

use futures::StreamExt;
use futures::stream::BoxStream;
use polylet_kit::Ctx;
use polylet_watch::{follow, follow_named};
use polylet_wire::pleg::v1::pleg_service_client::PlegServiceClient;
use polylet_wire::pleg::v1::{WatchPodStatesRequest, WatchPodStatesResponse};
use polylet_wire::podconfig::v1::pod_config_service_client::PodConfigServiceClient;
use polylet_wire::podconfig::v1::{PodSource, WatchPodsRequest, WatchPodsResponse};

use crate::run::Input;

/// Every stream, as inputs of the task.
pub(crate) fn all(ctx: &Ctx) -> Vec<BoxStream<'static, Input>> {
    let mut all: Vec<BoxStream<'static, Input>> = Vec::new();
    for (source, stream) in [
        (PodSource::Api, "WatchPods/api"),
        (PodSource::File, "WatchPods/file"),
        (PodSource::Http, "WatchPods/http"),
    ] {
        let peer = ctx.peer("pod-config");
        let channel = peer.channel();
        let open = move |resume_after| {
            let mut client = PodConfigServiceClient::new(channel.clone());
            async move {
                let source = source.into();
                client
                    .watch_pods(WatchPodsRequest {
                        resume_after,
                        source,
                    })
                    .await
            }
        };
        all.push(
            follow_named::<WatchPodsResponse, _, _>(peer, stream, open)
                .map(Input::Pod)
                .boxed(),
        );
    }
    let peer = ctx.peer("pleg");
    let channel = peer.channel();
    let open = move |resume_after| {
        let mut client = PlegServiceClient::new(channel.clone());
        async move {
            client
                .watch_pod_states(WatchPodStatesRequest { resume_after })
                .await
        }
    };
    all.push(
        follow::<WatchPodStatesResponse, _, _>(peer, open)
            .map(Input::State)
            .boxed(),
    );
    all
}
