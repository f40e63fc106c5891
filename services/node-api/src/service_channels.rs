//! Channels to all services that this one may call, by their names.

use polylet_kit::{Channel, Ctx};
use polylet_wire::lifecycle::v1::SetLogVerbosityRequest;
use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;
use tonic::Request;

use crate::peer_calls::{INFO_TIMEOUT, repeated};

/// All other services but the supervisor: each counts something, has a log, and can be profiled. Clones share the
/// connections.
#[derive(Clone, Default)]
pub(crate) struct ServiceChannels(Vec<(&'static str, Channel)>);

impl ServiceChannels {
    pub(crate) fn new(ctx: &Ctx) -> Self {
        Self(vec![
            ("device-manager", ctx.peer("device-manager").channel()),
            ("eviction", ctx.peer("eviction").channel()),
            ("image-gc", ctx.peer("image-gc").channel()),
            ("pleg", ctx.peer("pleg").unwatched_channel()),
            ("pod-config", ctx.peer("pod-config").unwatched_channel()),
            ("prober", ctx.peer("prober").channel()),
            (
                "status-reporter",
                ctx.peer("status-reporter").unwatched_channel(),
            ),
            (
                "sync-coordinator",
                ctx.peer("sync-coordinator").unwatched_channel(),
            ),
            ("volume-manager", ctx.peer("volume-manager").channel()),
        ])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(&'static str, Channel)> {
        self.0.iter()
    }

    /// The names of the services, and of this one.
    pub(crate) fn service_names(&self) -> impl Iterator<Item = &'static str> {
        let others = self.0.iter().map(|(name, _)| *name);
        others.chain(std::iter::once("node-api"))
    }

    /// The channel of another service.
    pub(crate) fn channel(&self, name: &str) -> Option<Channel> {
        let mut services = self.0.iter();
        let found = services.find(|(service, _)| *service == name);
        found.map(|(_, channel)| channel.clone())
    }

    /// Sets the log verbosity of all of them, and returns those that do not have it, with the reasons.
    pub(crate) async fn set_log_verbosity(&self, verbosity: u32) -> Vec<(&'static str, String)> {
        let calls = self.0.iter().map(|(service, channel)| async move {
            let set = repeated(|| {
                let mut client = LifecycleServiceClient::new(channel.clone());
                let mut request = Request::new(SetLogVerbosityRequest { verbosity });
                request.set_timeout(INFO_TIMEOUT);
                async move { client.set_log_verbosity(request).await }
            });
            let failed = set.await.err();
            failed.map(|status| (*service, status.message().to_owned()))
        });
        let failed = futures::future::join_all(calls).await;
        failed.into_iter().flatten().collect()
    }
}
