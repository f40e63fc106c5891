//! Pod certificates: for each, a key and a PodCertificateRequest, and another in time. As with the
//! kubelet, keys are kept in memory only.

mod key;
mod request;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use polylet_api::{RetryTimer, random};
use polylet_kit::{CancellationToken, Notices, clock};
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::watch_pod_certificate_response::State as WireState;
use polylet_wire::podconfig::v1::{
    PodCertificate, Refused, Unknown, WatchPodCertificateRequest, WatchPodCertificateResponse,
};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::sleep;
use tonic::Status;

use super::connection_pool::ConnectionPool;
use super::node::CachedNode;
use crate::core::cluster::certificate::{CertificateAge, CertificateOutcome, DesiredCertificate};
use request::CertificateRequest;

/// How long a certificate without subscribers is maintained: a subscriber may have crashed.
const UNSUBSCRIBE_GRACE: Duration = Duration::from_secs(60);
/// When subscribers are told that there is no certificate yet.
const SLOW_START: Duration = Duration::from_secs(2);
/// Delays between failed requests.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(250);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

type CertificateSender = watch::Sender<Option<WireState>>;

/// All certificates. Clones share them.
#[derive(Clone)]
pub(crate) struct PodCertificates {
    entries: Arc<Mutex<BTreeMap<DesiredCertificate, Arc<CertificateSender>>>>,
    start: mpsc::UnboundedSender<StartCertificate>,
}

type StartCertificate = (DesiredCertificate, Arc<CertificateSender>);

/// Certificates to be requested.
pub(crate) type CertificateStartQueue = mpsc::UnboundedReceiver<StartCertificate>;

/// What requests need.
pub(crate) struct CertificateDeps {
    pub(crate) pool: ConnectionPool,
    pub(crate) node_name: String,
    /// The Node object.
    pub(crate) node: watch::Receiver<CachedNode>,
    pub(crate) notices: Notices,
    /// One permit for generating RSA keys: several at once are no faster, and would delay others.
    pub(crate) slow_keys: Arc<Semaphore>,
}

impl PodCertificates {
    pub(crate) fn new() -> (PodCertificates, CertificateStartQueue) {
        let (start, queue) = mpsc::unbounded_channel();
        let entries = Arc::default();
        (PodCertificates { entries, start }, queue)
    }

    /// Maintains a certificate for as long as the receiver exists.
    pub(crate) fn subscribe(
        &self,
        pod: PodRef,
        request: WatchPodCertificateRequest,
    ) -> watch::Receiver<Option<WireState>> {
        let key = DesiredCertificate {
            uid: pod.uid,
            namespace: pod.namespace,
            pod: pod.name,
            account: request.service_account,
            volume: request.volume,
            source_index: request.source_index,
            signer: request.signer_name,
            key_type: request.key_type,
            max_expiration_seconds: request.max_expiration_seconds,
            annotations: request.user_annotations.into_iter().collect(),
        };
        let mut entries = self.lock();
        if let Some(state) = entries.get(&key) {
            return state.subscribe();
        }
        let state = Arc::new(CertificateSender::new(None));
        let receiver = state.subscribe();
        entries.insert(key.clone(), state.clone());
        // Fails only while the process is stopping.
        let _ = self.start.send((key, state));
        receiver
    }

    /// Maintains all certificates.
    pub(crate) async fn run(
        self,
        deps: CertificateDeps,
        mut queue: CertificateStartQueue,
        drain: CancellationToken,
    ) {
        let mut all = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = drain.cancelled() => return,
                Some((key, state)) = queue.recv() => {
                    all.push(self.run_certificate(&deps, key, state));
                }
                Some(()) = all.next() => {}
            }
        }
    }

    async fn run_certificate(
        &self,
        deps: &CertificateDeps,
        key: DesiredCertificate,
        state: Arc<CertificateSender>,
    ) {
        let mut maintenance = std::pin::pin!(maintain(deps, &key, &state));
        let mut slow_start = std::pin::pin!(sleep(SLOW_START));
        let mut is_slow = false;
        loop {
            tokio::select! {
                () = &mut maintenance => {}
                () = &mut slow_start, if !is_slow => {
                    is_slow = true;
                    publish_unknown(&state, "");
                }
                () = unsubscribed(&state) => {
                    let mut entries = self.lock();
                    if state.receiver_count() == 0 {
                        entries.remove(&key);
                        return;
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<DesiredCertificate, Arc<CertificateSender>>> {
        // Every change under the lock is complete in itself.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The responses for one subscriber, one per change.
pub(crate) fn stream(
    mut state: watch::Receiver<Option<WireState>>,
) -> impl Stream<Item = Result<WatchPodCertificateResponse, Status>> {
    state.mark_changed();
    stream::unfold(state, |mut state| async move {
        loop {
            state.changed().await.ok()?;
            let current = state.borrow_and_update().clone();
            if current.is_some() {
                let response = WatchPodCertificateResponse { state: current };
                return Some((Ok(response), state));
            }
        }
    })
}

/// Returns when a certificate has had no subscribers for a while.
async fn unsubscribed(state: &CertificateSender) {
    state.closed().await;
    sleep(UNSUBSCRIBE_GRACE).await;
}

/// Publishes an error, unless there is a certificate.
fn publish_unknown(state: &CertificateSender, message: &str) {
    let unknown = Some(WireState::Unknown(Unknown {
        message: message.to_owned(),
    }));
    state.send_if_modified(|published| {
        let replaceable = matches!(published, None | Some(WireState::Unknown(_)));
        let changed = replaceable && *published != unknown;
        if changed {
            *published = unknown;
        }
        changed
    });
}

/// Obtains a certificate, and refreshes it until a request fails for good.
async fn maintain(deps: &CertificateDeps, desired: &DesiredCertificate, state: &CertificateSender) {
    let pod = PodRef {
        uid: desired.uid.clone(),
        namespace: desired.namespace.clone(),
        name: desired.pod.clone(),
    };
    let mut age: Option<CertificateAge> = None;
    loop {
        let refresh_at = age.as_ref().map(|age| age.refresh_at);
        let obtaining = async {
            if let Some(at) = refresh_at {
                clock::sleep_until(at).await;
            }
            obtain(deps, desired, state).await
        };
        let (name, private_key, outcome) = tokio::select! {
            obtained = obtaining => obtained,
            () = emit_age_events(deps, &pod, age.as_mut()) => continue,
        };
        match outcome {
            CertificateOutcome::Issued(issued) => {
                age = Some(CertificateAge::new(&issued, random()));
                state.send_replace(Some(WireState::Certificate(PodCertificate {
                    private_key,
                    certificate_chain: issued.chain,
                })));
            }
            CertificateOutcome::Failed(failure) => {
                let name = format!("{}/{name}", desired.namespace);
                let event = failure.event_message(&name);
                deps.notices.warning(&pod, "", failure.condition, event);
                let message = failure.wait_message();
                state.send_replace(Some(WireState::Refused(Refused { message })));
                // Permanent for this pod.
                return std::future::pending().await;
            }
        }
    }
}

/// Sends requests until one has an outcome; returns the request's name, the key and the outcome.
async fn obtain(
    deps: &CertificateDeps,
    desired: &DesiredCertificate,
    state: &CertificateSender,
) -> (String, String, CertificateOutcome) {
    let mut retry = RetryTimer::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
    let request = CertificateRequest { deps, desired };
    loop {
        match request.issue().await {
            Ok(obtained) => return obtained,
            Err(error) => {
                let pod = format!("{}/{}", desired.namespace, desired.pod);
                tracing::debug!(pod, %error, "failed to obtain pod certificate; retrying");
                publish_unknown(state, &error.message);
                retry.failed(None);
                retry.wait().await;
            }
        }
    }
}

/// Emits events for a certificate that is overdue for refresh or expired.
async fn emit_age_events(deps: &CertificateDeps, pod: &PodRef, age: Option<&mut CertificateAge>) {
    let Some(age) = age else {
        return std::future::pending().await;
    };
    while let Some(at) = age.next_event_at() {
        // Events are due after that time, not at it.
        let after = at.saturating_add(SignedDuration::from_millis(1));
        clock::sleep_until(after.unwrap_or(Timestamp::MAX)).await;
        for (reason, message) in age.due_events(Timestamp::now()) {
            deps.notices.warning(pod, "", reason, message);
        }
    }
    std::future::pending().await
}
