//! What the prober follows.

use futures::StreamExt;
use futures::stream::{LocalBoxStream, SelectAll};
use polylet_kit::Ctx;
use polylet_watch::{follow, follow_named};
use polylet_wire::pleg::v1::WatchPodStatesRequest;
use polylet_wire::pleg::v1::pleg_service_client::PlegServiceClient;
use polylet_wire::podconfig::v1::pod_config_service_client::PodConfigServiceClient;
use polylet_wire::podconfig::v1::{PodSource, WatchPodsRequest};

use crate::run::Input;

/// Every stream, as inputs of the task.
pub(crate) fn all(ctx: &Ctx) -> SelectAll<LocalBoxStream<'static, Input>> {
    let mut all = SelectAll::new();
    all.push(states(ctx));
    for (source, name) in [
        (PodSource::File, "WatchPods/file"),
        (PodSource::Http, "WatchPods/http"),
        (PodSource::Api, "WatchPods/api"),
    ] {
        all.push(pods(ctx, source, name));
    }
    all
}

fn states(ctx: &Ctx) -> LocalBoxStream<'static, Input> {
    let pleg = ctx.peer("pleg");
    let client = PlegServiceClient::new(pleg.channel());
    let open = move |resume_after| {
        let mut client = client.clone();
        async move {
            client
                .watch_pod_states(WatchPodStatesRequest { resume_after })
                .await
        }
    };
    follow(pleg, open).map(Input::State).boxed_local()
}

fn pods(ctx: &Ctx, source: PodSource, name: &'static str) -> LocalBoxStream<'static, Input> {
    let pod_config = ctx.peer("pod-config");
    let client = PodConfigServiceClient::new(pod_config.channel());
    let open = move |resume_after| {
        let mut client = client.clone();
        async move {
            client
                .watch_pods(WatchPodsRequest {
                    resume_after,
                    source: source as i32,
                })
                .await
        }
    };
    follow_named(pod_config, name, open)
        .map(move |update| Input::Pod(source, update))
        .boxed_local()
}
