//! The cluster as a source: what its API server holds for this node.
//!
//! | file | what is followed |
//! | --- | --- |
//! | `pods` | pods bound to this node, and mirrors among them |
//! | `node` | the node's own object |
//! | `services` | Services that have an address |
//! | `objects`, `polled` | what pods refer to, by name or signer, while it is wanted |
//! | `tokens` | tokens of service accounts |
//! | `certificates` | certificates of pods |
//!
//! `follow` does the listing and watching for all of them, over the connections of `line`, by the
//! requests of `request`; `discovery` asks which version of a kind there is. `trouble` knows whether
//! the server is away, [`crate::keep`] holds on disk what it said last, and `whose` knows which cluster it was.

pub(crate) mod certificates;
mod discovery;
mod follow;
mod line;
mod node;
mod objects;
mod pods;
mod polled;
mod request;
mod services;
mod tokens;
mod trouble;
mod whose;

use std::path::Path;
use std::sync::Arc;

use polylet_api::Access;
use polylet_kit::Ctx;
use polylet_wire::podconfig::v1::Problem;
use tokio::sync::{Semaphore, watch};

use crate::core::cluster::kept::KeptNode;
use crate::keep::{Entries, Pace, Paced};
use certificates::{Certificates, Means};
use line::Lines;
use node::Known;
use objects::Objects;
pub(crate) use objects::State;
use pods::Stores;
use services::Services;
use tokens::Tokens;
pub(crate) use trouble::Away;
use whose::Whose;

/// What of the cluster is served.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) pods: Stores,
    pub(crate) services: Services,
    pub(crate) node: watch::Sender<Known>,
    pub(crate) problems: watch::Sender<Vec<Problem>>,
    keeps: Vec<Pace>,
    /// Nothing on a node that stands alone.
    pub(crate) asked: Option<Asked>,
}

/// What is asked for when it is wanted.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) objects: Objects,
    pub(crate) tokens: Tokens,
    pub(crate) certificates: Certificates,
    lines: Lines,
}

impl Asked {
    pub(crate) fn away(&self) -> watch::Receiver<Option<Away>> {
        self.lines.trouble.changes()
    }
}

impl Cluster {
    /// Of a node that stands alone: there is nothing, and that is known.
    pub fn none(incarnation: &str) -> Cluster {
        let cluster = Cluster::unknown(incarnation);
        cluster.pods.mark_whole();
        cluster.services.mark_whole();
        cluster.node.send_replace(Some(None));
        cluster
    }

    fn unknown(incarnation: &str) -> Cluster {
        Cluster {
            pods: Stores::new(incarnation),
            services: Services::new(incarnation),
            node: watch::Sender::new(None),
            problems: watch::Sender::new(Vec::new()),
            keeps: Vec::new(),
            asked: None,
        }
    }

    /// Waits, after the drain, until what was said last is on disk.
    pub async fn finish(self) -> Vec<String> {
        for keep in &self.keeps {
            keep.finish().await;
        }
        Vec::new()
    }

    /// Follows what the API server holds.
    pub fn follow(ctx: &Ctx, access: Access) -> Cluster {
        let mut cluster = Cluster::unknown(ctx.incarnation());
        let dir = ctx.state_dir();
        let whose = Whose::settle(access.clone(), dir);
        let lines = Lines::new(access);
        ctx.spawn("cluster", whose.watch(lines.credentials()));
        ctx.spawn("credentials", lines.clone().renew());
        cluster.follow_pods(ctx, &lines, dir);
        cluster.follow_node(ctx, &lines, dir);
        cluster.follow_services(ctx, &lines, dir);

        let keep = Entries::new(dir.join("objects.json"));
        cluster.keeps.push(keep.pace());
        let (objects, begun) = Objects::new(keep.clone());
        ctx.spawn("keep objects", keep.run(objects.kept(), ctx.drain()));
        let running = objects.clone();
        ctx.spawn("objects", running.run(lines.clone(), begun, ctx.drain()));
        let keep = cluster.keep(dir, "tokens.json");
        let tokens = Tokens::new(lines.clone(), cluster.pods.plain.clone(), keep.clone());
        let kept = tokens.clone();
        ctx.spawn("keep tokens", keep.run(move || kept.kept(), ctx.drain()));
        let (certificates, begun) = Certificates::new();
        let means = Means {
            lines: lines.clone(),
            name: ctx.node_name().to_owned(),
            node: cluster.node.subscribe(),
            notices: ctx.notices().clone(),
            slow: Arc::new(Semaphore::new(1)),
        };
        let running = certificates.clone().run(means, begun, ctx.drain());
        ctx.spawn("certificates", running);
        cluster.asked = Some(Asked {
            objects,
            tokens,
            certificates,
            lines,
        });
        cluster
    }

    fn keep(&mut self, dir: &Path, name: &str) -> Paced {
        let keep = Paced::new(dir.join(name));
        self.keeps.push(keep.pace());
        keep
    }

    fn follow_pods(&mut self, ctx: &Ctx, lines: &Lines, dir: &Path) {
        let (name, trouble) = (ctx.node_name().to_owned(), lines.trouble.clone());
        let keep = Entries::new(dir.join("api.json"));
        self.keeps.push(keep.pace());
        let problems = self.problems.clone();
        let (stores, away) = (self.pods.clone(), trouble.clone());
        let mut pods = pods::Pods::new(stores, away, keep.clone(), problems, &name);
        let keeping = pods::Keeping {
            stores: self.pods.clone(),
            trouble,
            node: name.clone(),
        };
        ctx.spawn("keep pods", keep.run(keeping, ctx.drain()));
        let (lines, drain) = (lines.clone(), ctx.drain());
        ctx.spawn("pods", async move {
            let followed = pods::followed(&name);
            tokio::select! {
                () = drain.cancelled() => {}
                () = follow::follow(&lines, &followed, &mut pods) => {}
            }
        });
    }

    fn follow_node(&mut self, ctx: &Ctx, lines: &Lines, dir: &Path) {
        let name = ctx.node_name().to_owned();
        let keep = self.keep(dir, "node.json");
        let mut node = node::Node::new(self.node.clone(), keep.clone(), &name);
        let (known, of) = (self.node.clone(), name.clone());
        let make = move || KeptNode {
            of: of.clone(),
            manifest: known.borrow().clone().flatten().map(|it| it.to_string()),
        };
        ctx.spawn("keep node", keep.run(make, ctx.drain()));
        let (lines, drain) = (lines.clone(), ctx.drain());
        ctx.spawn("node", async move {
            let followed = node::followed(&name);
            tokio::select! {
                () = drain.cancelled() => {}
                () = follow::follow(&lines, &followed, &mut node) => {}
            }
        });
    }

    fn follow_services(&mut self, ctx: &Ctx, lines: &Lines, dir: &Path) {
        let keep = self.keep(dir, "services.json");
        let mut hearing = services::Hearing::new(self.services.clone(), keep.clone());
        let all = self.services.clone();
        let make = move || services::kept(&all);
        ctx.spawn("keep services", keep.run(make, ctx.drain()));
        let (lines, drain) = (lines.clone(), ctx.drain());
        ctx.spawn("services", async move {
            let followed = services::followed();
            tokio::select! {
                () = drain.cancelled() => {}
                () = follow::follow(&lines, &followed, &mut hearing) => {}
            }
        });
    }
}
