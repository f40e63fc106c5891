//! How a container is asked: one attempt of one probe.

mod exec;
mod grpc;
mod http;
mod net;
#[cfg(test)]
mod tests;
mod within;

use std::rc::Rc;
use std::time::Duration;

use polylet_cri::Runtime;
use tokio::sync::Semaphore;

use crate::core::types::{Ask, Job, Observation};

/// A command in a container is work for the runtime: more at once make each of them later.
const EXECS: usize = 8;
/// An attempt gives its turn to the next after this at the latest.
const TURN: Duration = Duration::from_secs(1);
/// Connections under way at once.
const CONNECTIONS: usize = 256;
/// What is read of a body or an output, as upstream.
const MAX_BODY: usize = 10 << 10;
/// An attempt that went wrong itself is repeated at once, as upstream.
const TRIES: usize = 3;
/// As upstream's; the version is that of the API this node speaks.
const USER_AGENT: &str = "kube-probe/1.36";

/// Makes attempts. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Prober {
    inner: Rc<Inner>,
}

struct Inner {
    runtime: Runtime,
    execs: Semaphore,
    connections: Semaphore,
    tls: polylet_http::Tls,
}

impl Prober {
    pub(crate) fn new(runtime: Runtime) -> Self {
        let (execs, connections) = (Semaphore::new(EXECS), Semaphore::new(CONNECTIONS));
        Prober {
            inner: Rc::new(Inner {
                runtime,
                execs,
                connections,
                tls: polylet_http::Tls::default(),
            }),
        }
    }

    /// One attempt. Waits for its turn first: that is no part of the attempt's time.
    pub(crate) async fn attempt(&self, job: &Job) -> Observation {
        let turns = match &job.probe.ask {
            Ask::Exec { .. } => &self.inner.execs,
            _ => &self.inner.connections,
        };
        // Never closed; without a turn the attempt would only be less orderly.
        let turn = turns.acquire().await;
        let asking = self.ask_until_told(job);
        tokio::pin!(asking);
        tokio::select! {
            said = asking.as_mut() => return said,
            () = tokio::time::sleep(TURN) => {}
        }
        // Starts are bounded, not runs: programs that hang must not keep the others' from running.
        drop(turn);
        asking.await
    }

    async fn ask_until_told(&self, job: &Job) -> Observation {
        let mut said = Observation::Unknown(String::new());
        for _ in 0..TRIES {
            said = self.ask(job).await;
            if !matches!(said, Observation::Unknown(_)) {
                break;
            }
        }
        said
    }

    async fn ask(&self, job: &Job) -> Observation {
        let limit = job.probe.timeout;
        match &job.probe.ask {
            Ask::Exec { command } => {
                exec::ask(
                    &self.inner.runtime,
                    job.id.container.as_str(),
                    command,
                    limit,
                )
                .await
            }
            Ask::Http(ask) => {
                within::within(limit, http::ask(ask, &job.host, &self.inner.tls)).await
            }
            Ask::Tcp { host, port } => {
                let host = host.as_ref().unwrap_or(&job.host);
                within::within(limit, net::ask(host, *port)).await
            }
            Ask::Grpc { port, service } => {
                within::within(limit, grpc::ask(&job.host, *port, service)).await
            }
            Ask::Impossible(why) => Observation::Unknown(why.clone()),
        }
    }
}
