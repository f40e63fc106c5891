//! Probe handlers: one attempt of one probe.
//!
//! Requests, success criteria and failure messages follow upstream's handlers. HTTPS is HTTP/1.1,
//! where upstream would also negotiate HTTP/2. A timeout only counts time in which the prober itself
//! was running.

mod exec;
mod grpc;
mod http;
mod permits;
mod tcp;
#[cfg(test)]
mod tests;
mod timeout;

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use permits::{AttemptPermits, MAX_PERMIT_TIME};
use polylet_cri::RuntimeClient;
use polylet_kit::HealthConditions;
use polylet_model::ids::PodUid;
use polylet_schedule::FairLimits;
use timeout::with_timeout;
use tokio::time::Instant;

use crate::core::types::{ProbeAttempt, ProbeOutput, ResolvedHandler};

/// Commands in containers that start at once. They are work for the runtime: more at once would make
/// each one later.
const EXEC_LIMITS: FairLimits = FairLimits {
    total: 8,
    per_owner: 2,
    slow: 4,
};
/// Connections that are opened at once.
const CONNECTION_LIMITS: FairLimits = FairLimits {
    total: 256,
    per_owner: 32,
    slow: 128,
};
/// The part of a body or output that is read, as upstream.
const MAX_BODY: usize = 10 << 10;
/// Attempts that fail themselves are repeated at once, as upstream.
const MAX_TRIES: usize = 3;
/// The health condition of a name that the system's resolver does not answer, and how long it lasts
/// after the last attempt that has waited for it.
const RESOLVER_NOT_RESPONDING: &str = "ResolverNotResponding";
const CONDITION_TIME: Duration = Duration::from_secs(30);
/// As upstream, with the API version of this node.
const USER_AGENT: &str = "kube-probe/1.36";

/// Makes attempts. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Prober {
    inner: Rc<ProberInner>,
}

struct ProberInner {
    runtime: RuntimeClient,
    execs: AttemptPermits,
    connections: AttemptPermits,
    http: polylet_http::Client,
}

impl Prober {
    pub(crate) fn new(runtime: RuntimeClient) -> Self {
        Prober {
            inner: Rc::new(ProberInner {
                runtime,
                execs: AttemptPermits::new(EXEC_LIMITS),
                connections: AttemptPermits::new(CONNECTION_LIMITS),
                http: polylet_http::Client::for_probes(),
            }),
        }
    }

    /// Makes one attempt and returns its duration, which does not include the wait for a permit.
    pub(crate) async fn probe(&self, attempt: &ProbeAttempt) -> (ProbeOutput, Duration) {
        let permits = match &attempt.probe.handler {
            ResolvedHandler::Exec { .. } => &self.inner.execs,
            _ => &self.inner.connections,
        };
        with_permit(permits, &attempt.id.pod, self.probe_with_retries(attempt)).await
    }

    async fn probe_with_retries(&self, attempt: &ProbeAttempt) -> ProbeOutput {
        let mut output = ProbeOutput::Unknown(String::new());
        for _ in 0..MAX_TRIES {
            output = self.probe_once(attempt).await;
            if !matches!(output, ProbeOutput::Unknown(_)) {
                break;
            }
        }
        output
    }

    async fn probe_once(&self, attempt: &ProbeAttempt) -> ProbeOutput {
        let timeout = attempt.probe.timeout;
        let pod_address = &attempt.host;
        // What the kinds need is boxed: attempts of all kinds would have room for the largest, twice.
        match &attempt.probe.handler {
            ResolvedHandler::Exec { command } => {
                let container_id = attempt.id.container.as_str();
                exec::probe(&self.inner.runtime, container_id, command, timeout).await
            }
            ResolvedHandler::Http(get) => {
                let progress = polylet_http::GetProgress::default();
                let get = http::request(get, attempt);
                let probing = http::probe(&get, &self.inner.http, &progress);
                let timed_out = || {
                    self.record_lookup(get.target.host());
                    http::timed_out(&get, &progress)
                };
                with_timeout(timeout, Box::pin(probing), timed_out).await
            }
            ResolvedHandler::Tcp { host, port } => {
                let host = host.as_deref().unwrap_or(pod_address);
                let client = &self.inner.http;
                let probing = tcp::probe(client, attempt.id.pod.as_str(), host, *port);
                let timed_out = || {
                    self.record_lookup(host);
                    tcp::timed_out(host, *port)
                };
                with_timeout(timeout, Box::pin(probing), timed_out).await
            }
            ResolvedHandler::Grpc { port, service } => {
                let progress = grpc::HealthCheckProgress::default();
                let server = (attempt.id.pod.as_str(), &**pod_address, *port);
                let probing = grpc::probe(&self.inner.http, server, service, &progress);
                let timed_out = || progress.timed_out(pod_address, *port, timeout);
                with_timeout(timeout, Box::pin(probing), timed_out).await
            }
            ResolvedHandler::Invalid(reason) => ProbeOutput::Unknown(reason.clone()),
        }
    }
}

impl Prober {
    /// Names the resolver when it is what an attempt has waited for in vain.
    fn record_lookup(&self, host: &str) {
        if let Some(age) = self.inner.http.lookup_age(host) {
            let seconds = age.as_secs();
            let message = format!("no response to a lookup of this name for {seconds} s");
            let conditions = HealthConditions::of_process();
            conditions.set_for(RESOLVER_NOT_RESPONDING, host, message, CONDITION_TIME);
        }
    }
}

/// Runs an attempt once its pod gets a permit. Returns its duration, without the wait.
async fn with_permit(
    permits: &AttemptPermits,
    pod: &PodUid,
    attempt: impl Future<Output = ProbeOutput>,
) -> (ProbeOutput, Duration) {
    let permit = permits.acquire(pod).await;
    let began = Instant::now();
    let mut attempt = pin!(attempt);
    let early = tokio::time::timeout(permit.time(), attempt.as_mut()).await;
    // Starts are limited, not runs: commands that hang must not block those of other containers.
    let output = match early {
        Ok(output) => output,
        Err(_) => {
            if permit.time() >= MAX_PERMIT_TIME {
                permits.set_slow(pod, true);
            }
            drop(permit);
            attempt.await
        }
    };
    let duration = began.elapsed();
    permits.set_slow(pod, duration >= MAX_PERMIT_TIME);
    (output, duration)
}
