//! The streams that are followed.

use futures::StreamExt;
use futures::stream::{LocalBoxStream, SelectAll};
use polylet_kit::Ctx;
use polylet_watch::{follow, follow_named, follow_value};
use polylet_wire::pleg::v1::pleg_service_client::PlegServiceClient;
use polylet_wire::pleg::v1::{WatchPodStatesRequest, WatchRuntimeRequest};
use polylet_wire::podconfig::v1::pod_config_service_client::PodConfigServiceClient;
use polylet_wire::podconfig::v1::{PodSource, WatchPodsRequest};
use polylet_wire::prober::v1::WatchVerdictsRequest;
use polylet_wire::prober::v1::prober_service_client::ProberServiceClient;
use polylet_wire::sync::v1::WatchPodSyncRequest;
use polylet_wire::sync::v1::sync_service_client::SyncServiceClient;

use crate::core::facts::Source;
use crate::run::Input;

/// Every stream, as inputs of the task.
pub(crate) fn all(ctx: &Ctx) -> SelectAll<LocalBoxStream<'static, Input>> {
    let mut all = SelectAll::new();
    for source in Source::ALL {
        all.push(pods(ctx, source));
    }
    all.push(sync(ctx));
    all.push(states(ctx));
    all.push(runtime(ctx));
    all.push(verdicts(ctx));
    all
}

fn pods(ctx: &Ctx, source: Source) -> LocalBoxStream<'static, Input> {
    let (wire, name) = match source {
        Source::File => (PodSource::File, "WatchPods/file"),
        Source::Http => (PodSource::Http, "WatchPods/http"),
        Source::Api => (PodSource::Api, "WatchPods/api"),
    };
    let peer = ctx.peer("pod-config");
    let client = PodConfigServiceClient::new(peer.channel());
    let open = move |resume_after| {
        let mut client = client.clone();
        async move {
            client
                .watch_pods(WatchPodsRequest {
                    resume_after,
                    source: wire as i32,
                })
                .await
        }
    };
    follow_named(peer, name, open)
        .map(move |update| Input::Pod(source, update))
        .boxed_local()
}

fn sync(ctx: &Ctx) -> LocalBoxStream<'static, Input> {
    let peer = ctx.peer("sync-coordinator");
    let client = SyncServiceClient::new(peer.channel());
    let open = move |resume_after| {
        let mut client = client.clone();
        async move {
            client
                .watch_pod_sync(WatchPodSyncRequest { resume_after })
                .await
        }
    };
    follow(peer, open).map(Input::Sync).boxed_local()
}

fn states(ctx: &Ctx) -> LocalBoxStream<'static, Input> {
    let peer = ctx.peer("pleg");
    let client = PlegServiceClient::new(peer.channel());
    let open = move |resume_after| {
        let mut client = client.clone();
        async move {
            client
                .watch_pod_states(WatchPodStatesRequest { resume_after })
                .await
        }
    };
    follow(peer, open).map(Input::State).boxed_local()
}

fn runtime(ctx: &Ctx) -> LocalBoxStream<'static, Input> {
    let peer = ctx.peer("pleg");
    let client = PlegServiceClient::new(peer.channel());
    let open = move || {
        let mut client = client.clone();
        async move { client.watch_runtime(WatchRuntimeRequest {}).await }
    };
    follow_value(peer, open).map(Input::Runtime).boxed_local()
}

fn verdicts(ctx: &Ctx) -> LocalBoxStream<'static, Input> {
    let peer = ctx.peer("prober");
    let client = ProberServiceClient::new(peer.channel());
    let open = move |resume_after| {
        let mut client = client.clone();
        async move {
            client
                .watch_verdicts(WatchVerdictsRequest { resume_after })
                .await
        }
    };
    follow(peer, open).map(Input::Verdict).boxed_local()
}
