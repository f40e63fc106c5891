use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tonic::body::Body;
use tonic::server::NamedService;

use crate::linger::Lingering;
use crate::serve::Routes;

/// Work to finish at drain; returns what remains undone.
pub(crate) type OnDrain = Pin<Box<dyn Future<Output = Vec<String>>>>;

/// The result of a `build`: the servers, and the work to finish at drain.
#[derive(Default)]
pub struct Service {
    pub(crate) routes: Routes,
    pub(crate) on_drain: Vec<OnDrain>,
    pub(crate) activity: Option<Activity>,
    pub(crate) lingering: Option<Lingering>,
}

/// Describes what the service works on.
pub(crate) type Activity = Box<dyn Fn() -> String>;

impl Service {
    /// A service without servers.
    pub fn new() -> Service {
        Service::default()
    }

    /// Adds a gRPC server.
    pub fn grpc<S>(mut self, server: S) -> Service
    where
        S: tower_service::Service<
                http::Request<Body>,
                Response = http::Response<Body>,
                Error = Infallible,
            > + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.routes.add(server);
        self
    }

    /// What the service works on, such as `12 pods`: the beginning of the line that `systemctl status`
    /// shows. Called now and then.
    pub fn activity(mut self, describe: impl Fn() -> String + 'static) -> Service {
        self.activity = Some(Box::new(describe));
        self
    }

    /// Work that goes on after the drain, when the service's socket, ports and lock are released, so that its
    /// next process runs meanwhile: at most for `limit`, and much shorter where the service manager waits
    /// for the end of this process.
    pub fn lingering(
        mut self,
        limit: Duration,
        work: impl Future<Output = ()> + 'static,
    ) -> Service {
        self.lingering = Some(Lingering::new(limit, work));
        self
    }

    /// Runs when draining starts, after [`crate::Ctx::drain`] is cancelled, at most until the drain's
    /// deadline. Returns descriptions of unfinished work, for the log.
    pub fn on_drain(mut self, finish: impl Future<Output = Vec<String>> + 'static) -> Service {
        self.on_drain.push(Box::pin(finish));
        self
    }
}
