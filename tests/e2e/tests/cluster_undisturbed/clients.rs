//! Clients that call pods and the node API without pause, each time by a new connection.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use polylet_e2e::ok;
use polylet_harness::{Cluster, HarnessError, Node, http};
use tokio::task::JoinHandle;

use crate::standing_pods::PORT;

/// Between two calls of one client.
const PAUSE: Duration = Duration::from_millis(5);

/// The clients, until it is dropped.
pub(crate) struct Clients {
    calls: Arc<Mutex<Calls>>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Calls {
    of_pods: Kind,
    of_node_api: Kind,
    /// Broken after they were accepted; those of them that are not answered when repeated are failed, too.
    broken: Vec<String>,
    failed: Vec<String>,
}

#[derive(Debug, Default)]
struct Kind {
    answered: u64,
    longest: Duration,
}

impl Clients {
    pub(crate) async fn start(cluster: &Cluster, node: &Node, addresses: Vec<String>) -> Self {
        let calls = Arc::default();
        let tls = ok(node.pki().tls(true));
        let token = token(cluster).await;
        let port = node.ports().0;
        let pods = repeat(Arc::clone(&calls), |calls| &mut calls.of_pods, {
            let mut next = addresses.into_iter().cycle();
            move || {
                let address = next.next().unwrap_or_default();
                async move { http::get(&address, PORT, "/index.html").await }
            }
        });
        let node_api = repeat(Arc::clone(&calls), |calls| &mut calls.of_node_api, {
            move || {
                let (tls, token) = (Arc::clone(&tls), token.clone());
                async move { http::get_tls_as(tls, port, "/pods", &token).await }
            }
        });
        let tasks = vec![tokio::spawn(pods), tokio::spawn(node_api)];
        Self { calls, tasks }
    }

    /// # Panics
    /// When a call since the last time was refused or not answered with success. The kill of the process
    /// that has accepted a call may break it.
    pub(crate) fn assert_answered(&self, may_break: bool) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failed = std::mem::take(&mut calls.failed);
        let broken = std::mem::take(&mut calls.broken);
        if !may_break {
            failed.extend(broken);
        }
        assert!(failed.is_empty(), "failed calls: {failed:#?}");
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl fmt::Display for Clients {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let (pods, node_api) = (&calls.of_pods, &calls.of_node_api);
        write!(
            to,
            "calls of pods: {}, longest {:?}; of the node API: {}, longest {:?}",
            pods.answered, pods.longest, node_api.answered, node_api.longest
        )
    }
}

/// The token of a user who may do everything.
async fn token(cluster: &Cluster) -> String {
    let binding = [
        "create",
        "clusterrolebinding",
        "caller",
        "--clusterrole=cluster-admin",
        "--serviceaccount=default:default",
    ];
    ok(cluster.kubectl(&binding).await);
    let token = ok(cluster.kubectl(&["create", "token", "default"]).await);
    token.trim().to_owned()
}

async fn repeat<F>(
    calls: Arc<Mutex<Calls>>,
    kind: fn(&mut Calls) -> &mut Kind,
    mut call: impl FnMut() -> F,
) where
    F: Future<Output = Result<http::HttpResponse, HarnessError>>,
{
    let mut is_repeated = false;
    loop {
        let begun = Instant::now();
        let result = call().await;
        let took = begun.elapsed();
        let problem = match &result {
            Ok(response) if response.code() == 200 => None,
            Ok(response) => Some(format!(
                "{} after {took:?}: {}",
                response.status, response.body
            )),
            Err(error) => {
                let error = polylet_harness::error::report(error);
                Some(format!("{error} after {took:?}"))
            }
        };
        {
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            match problem {
                None => {
                    let kind = kind(&mut calls);
                    kind.answered += 1;
                    kind.longest = kind.longest.max(took);
                }
                // Repeated at once, by a new connection.
                Some(problem) if !is_repeated && is_broken(&result) => {
                    calls.broken.push(problem);
                    is_repeated = true;
                    continue;
                }
                Some(problem) => calls.failed.push(problem),
            }
        }
        is_repeated = false;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether the connection was accepted, and ended without an answer.
fn is_broken(result: &Result<http::HttpResponse, HarnessError>) -> bool {
    let Err(error) = result else {
        return false;
    };
    let error = polylet_harness::error::report(error);
    !error.contains("refused") && !error.contains("timed out")
}
