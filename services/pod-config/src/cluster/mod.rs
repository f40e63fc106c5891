//! The API server as a source: its objects that this node needs.
//!
//! | module | objects |
//! | --- | --- |
//! | `pods` | pods bound to this node, and mirror pods |
//! | `node` | the Node object |
//! | `services` | Services with a cluster IP |
//! | `objects` | objects that pods refer to, by name or signer, while they have subscribers; their last state stays in `object_cache` while a pod, or a cached object, names them (`object_references`) |
//! | `tokens` | service account tokens |
//! | `certificates` | pod certificates |
//!
//! `watcher` lists and watches for all of them (`poller` polls what nodes cannot watch), over the
//! connections of `connection_pool`, with the requests of `request`; `discovery` finds the served
//! version of a kind. `api_health` knows whether the API server is available, [`crate::persist`]
//! stores the last state, and `cluster_identity` tells which cluster it belongs to.

mod api_health;
pub(crate) mod certificates;
mod cluster_identity;
mod connection_pool;
mod discovery;
#[doc(hidden)]
pub mod fuzzing;
mod node;
mod object_cache;
mod object_references;
mod objects;
mod pods;
mod poller;
mod request;
mod services;
mod tokens;
mod watcher;

use std::path::Path;
use std::sync::Arc;

use polylet_api::ClientConfig;
use polylet_kit::Ctx;
use polylet_kit::state_file::StateFileError;
use polylet_wire::podconfig::v1::ManifestError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, watch};

use crate::persist::{DebouncedFile, Debouncer, KeyedLog};
pub(crate) use api_health::Outage;
use certificates::{CertificateDeps, PodCertificates};
use cluster_identity::ClusterIdentity;
use connection_pool::ConnectionPool;
use node::CachedNode;
use objects::ObjectWatches;
pub(crate) use objects::PublishedObject;
use pods::PodStores;
use services::ServiceStore;
use tokens::TokenCache;

/// Published objects of the API server.
#[derive(Clone)]
pub struct ApiServerSource {
    pub(crate) pods: PodStores,
    pub(crate) services: ServiceStore,
    pub(crate) node: watch::Sender<CachedNode>,
    pub(crate) errors: watch::Sender<Vec<ManifestError>>,
    debouncers: Vec<Debouncer>,
    /// `None` on a standalone node.
    pub(crate) on_demand: Option<OnDemand>,
}

/// Objects that are requested when there is a subscriber.
#[derive(Clone)]
pub(crate) struct OnDemand {
    pub(crate) objects: ObjectWatches,
    pub(crate) tokens: TokenCache,
    pub(crate) certificates: PodCertificates,
    pool: ConnectionPool,
}

impl OnDemand {
    /// Changes when the API server becomes available or unavailable.
    pub(crate) fn outages(&self) -> watch::Receiver<Option<Outage>> {
        self.pool.health.subscribe()
    }
}

impl ApiServerSource {
    /// The source of a standalone node: empty and synced.
    pub fn standalone(incarnation: &str) -> ApiServerSource {
        let source = ApiServerSource::new_unsynced(incarnation);
        source.pods.mark_synced();
        source.services.mark_synced();
        source.node.send_replace(Some(None));
        source
    }

    fn new_unsynced(incarnation: &str) -> ApiServerSource {
        ApiServerSource {
            pods: PodStores::new(incarnation),
            services: ServiceStore::new(incarnation),
            node: watch::Sender::new(None),
            errors: watch::Sender::new(Vec::new()),
            debouncers: Vec::new(),
            on_demand: None,
        }
    }

    /// Waits, after the drain, until all state is on disk.
    pub async fn flush(self) -> Vec<String> {
        for debouncer in &self.debouncers {
            debouncer.flush().await;
        }
        Vec::new()
    }

    /// Starts the tasks.
    ///
    /// # Errors
    /// A state file cannot be read, or a newer build wrote it.
    pub fn start(ctx: &Ctx, config: ClientConfig) -> Result<ApiServerSource, StateFileError> {
        let mut source = ApiServerSource::new_unsynced(ctx.incarnation());
        let identity = ClusterIdentity::verify(config.clone(), ctx.state_dir())?;
        let pool = ConnectionPool::new(config);
        ctx.spawn("cluster identity", identity.watch(pool.credentials()));
        ctx.spawn("credentials", pool.clone().watch_credentials());
        source.start_pods(ctx, &pool);
        source.start_node(ctx, &pool)?;
        source.start_services(ctx, &pool)?;
        source.on_demand = Some(OnDemand {
            objects: source.start_objects(ctx, &pool),
            tokens: source.start_tokens(ctx, &pool)?,
            certificates: source.start_certificates(ctx, &pool),
            pool,
        });
        Ok(source)
    }

    fn file<T>(&mut self, dir: &Path, name: &str) -> DebouncedFile<T>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let file = DebouncedFile::new(dir.join(name));
        self.debouncers.push(file.debouncer());
        file
    }

    fn log<K>(&mut self, dir: &Path, name: &str) -> KeyedLog<K>
    where
        K: Ord + Clone + Serialize + DeserializeOwned + Send + 'static,
    {
        let log = KeyedLog::new(dir.join(name));
        self.debouncers.push(log.debouncer());
        log
    }

    fn start_pods(&mut self, ctx: &Ctx, pool: &ConnectionPool) {
        let (node, health) = (ctx.node_name().to_owned(), pool.health.clone());
        let log = self.log(ctx.state_dir(), "api.json");
        let (stores, errors) = (self.pods.clone(), self.errors.clone());
        let mut handler =
            pods::PodHandler::new(stores.clone(), health.clone(), log.clone(), errors, &node);
        let persister = pods::PodPersister {
            stores,
            health,
            node: node.clone(),
        };
        ctx.spawn("persist pods", log.run(persister, ctx.drain()));
        let (pool, drain) = (pool.clone(), ctx.drain());
        ctx.spawn("pods", async move {
            let target = pods::watch_target(&node);
            tokio::select! {
                () = drain.cancelled() => {}
                () = watcher::watch(&pool, &target, &mut handler) => {}
            }
        });
    }

    fn start_node(&mut self, ctx: &Ctx, pool: &ConnectionPool) -> Result<(), StateFileError> {
        let name = ctx.node_name().to_owned();
        let file = self.file(ctx.state_dir(), "node.json");
        let mut handler = node::NodeHandler::new(self.node.clone(), file.clone(), &name)?;
        let (published, of) = (self.node.clone(), name.clone());
        let collect = move || node::to_persisted(&published.borrow(), &of);
        ctx.spawn("persist node", file.run(collect, ctx.drain()));
        let (pool, drain) = (pool.clone(), ctx.drain());
        ctx.spawn("node", async move {
            let target = node::watch_target(&name);
            tokio::select! {
                () = drain.cancelled() => {}
                () = watcher::watch(&pool, &target, &mut handler) => {}
            }
        });
        Ok(())
    }

    fn start_services(&mut self, ctx: &Ctx, pool: &ConnectionPool) -> Result<(), StateFileError> {
        let file = self.file(ctx.state_dir(), "services.json");
        let mut handler = services::ServiceHandler::new(self.services.clone(), file.clone())?;
        let services = self.services.clone();
        let collect = move || services::to_persisted(&services);
        ctx.spawn("persist services", file.run(collect, ctx.drain()));
        let (pool, drain) = (pool.clone(), ctx.drain());
        ctx.spawn("services", async move {
            let target = services::watch_target();
            tokio::select! {
                () = drain.cancelled() => {}
                () = watcher::watch(&pool, &target, &mut handler) => {}
            }
        });
        Ok(())
    }

    fn start_objects(&mut self, ctx: &Ctx, pool: &ConnectionPool) -> ObjectWatches {
        let log = self.log(ctx.state_dir(), "objects.json");
        let keep_secrets = ctx.config().polylet.keep_secrets;
        let (objects, queue) = ObjectWatches::new(log.clone(), keep_secrets, self.pods.clone());
        ctx.spawn("persist objects", log.run(objects.cache(), ctx.drain()));
        let running = objects.clone().run(pool.clone(), queue, ctx.drain());
        ctx.spawn("objects", running);
        objects
    }

    fn start_tokens(
        &mut self,
        ctx: &Ctx,
        pool: &ConnectionPool,
    ) -> Result<TokenCache, StateFileError> {
        let file = self.file(ctx.state_dir(), "tokens.json");
        let keep_secrets = ctx.config().polylet.keep_secrets;
        let tokens = TokenCache::new(
            pool.clone(),
            self.pods.pods.clone(),
            file.clone(),
            keep_secrets,
        )?;
        let cache = tokens.clone();
        let collect = move || cache.to_persisted();
        ctx.spawn("persist tokens", file.run(collect, ctx.drain()));
        Ok(tokens)
    }

    fn start_certificates(&self, ctx: &Ctx, pool: &ConnectionPool) -> PodCertificates {
        let (certificates, queue) = PodCertificates::new();
        let deps = CertificateDeps {
            pool: pool.clone(),
            node_name: ctx.node_name().to_owned(),
            node: self.node.subscribe(),
            notices: ctx.notices().clone(),
            slow_keys: Arc::new(Semaphore::new(1)),
        };
        let running = certificates.clone().run(deps, queue, ctx.drain());
        ctx.spawn("certificates", running);
        certificates
    }
}
