//! How a container is asked: one attempt of one probe.
//!
//! What is sent, what is a success and how a failure reads follow upstream's handlers. HTTPS is
//! HTTP/1.1, where upstream would also take HTTP/2. A time-out blames the container only for time
//! in which the prober itself ran.

mod exec;
mod grpc;
mod http;
mod net;
#[cfg(test)]
mod tests;
mod within;

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use polylet_cri::Runtime;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use within::within;

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

    /// One attempt, and how long it took. Waits for its turn first: that is no part of its time.
    pub(crate) async fn attempt(&self, job: &Job) -> (Observation, Duration) {
        let turns = match &job.probe.ask {
            Ask::Exec { .. } => &self.inner.execs,
            _ => &self.inner.connections,
        };
        // Never closed; without a turn the attempt would only be less orderly.
        let turn = turns.acquire().await;
        let begun = Instant::now();
        let mut asking = pin!(self.ask_until_told(job));
        let soon = tokio::time::timeout(TURN, asking.as_mut()).await;
        // Starts are bounded, not runs: programs that hang must not keep the others' from running.
        drop(turn);
        let said = match soon {
            Ok(said) => said,
            Err(_) => asking.await,
        };
        (said, begun.elapsed())
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
                let heard = polylet_http::Heard::default();
                let get = http::request(ask, &job.host);
                let asked = http::ask(&get, &self.inner.tls, &heard);
                within(limit, asked, || http::late(&get, &heard)).await
            }
            Ask::Tcp { host, port } => {
                let host = host.as_deref().unwrap_or(&job.host);
                let late = || Observation::Failure(net::dial(host, *port, "i/o timeout"));
                within(limit, net::ask(host, *port), late).await
            }
            Ask::Grpc { port, service } => {
                let heard = grpc::Heard::default();
                let asked = grpc::ask(&job.host, *port, service, &heard);
                within(limit, asked, || heard.late(&job.host, *port, limit)).await
            }
            Ask::Impossible(why) => Observation::Unknown(why.clone()),
        }
    }
}
