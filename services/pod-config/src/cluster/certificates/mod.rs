//! Certificates of pods: a key and a PodCertificateRequest for each, awaited, and anew in time. None
//! outlives the process, as upstream: keys are not for the disk.

mod key;
mod request;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt, stream};
use jiff::Timestamp;
use polylet_api::{Backoff, random};
use polylet_kit::{CancellationToken, Notices};
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::watch_pod_certificate_response::State as Told;
use polylet_wire::podconfig::v1::{
    PodCertificate, Refused, Unknown, WatchPodCertificateRequest, WatchPodCertificateResponse,
};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::sleep;
use tonic::Status;

use super::line::Lines;
use super::node::Known;
use crate::core::cluster::certificate::{Age, Outcome, Wanted};
use request::Asks;

/// After the last watcher has gone: it may have been killed, and asks for the same again.
const GRACE: Duration = Duration::from_secs(60);
/// Whoever waits is told after this that there is none yet.
const LATE: Duration = Duration::from_secs(2);
/// Between requests that failed.
const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(30);

type State = watch::Sender<Option<Told>>;

/// All certificates that are wanted. Clones share them.
#[derive(Clone)]
pub(crate) struct Certificates {
    wanted: Arc<Mutex<BTreeMap<Wanted, Arc<State>>>>,
    begin: mpsc::UnboundedSender<(Wanted, Arc<State>)>,
}

/// Those that are to be begun.
pub(crate) type Begun = mpsc::UnboundedReceiver<(Wanted, Arc<State>)>;

/// What certificates are had with.
pub(crate) struct Means {
    pub(crate) lines: Lines,
    /// This node's name.
    pub(crate) name: String,
    /// Its object.
    pub(crate) node: watch::Receiver<Known>,
    pub(crate) notices: Notices,
    /// One for the key that is being made of a kind that takes long: more at once are no faster, and
    /// would keep others waiting for a processor and for a thread.
    pub(crate) slow: Arc<Semaphore>,
}

impl Certificates {
    pub(crate) fn new() -> (Certificates, Begun) {
        let (begin, begun) = mpsc::unbounded_channel();
        let wanted = Arc::default();
        (Certificates { wanted, begin }, begun)
    }

    /// Sees to a certificate as long as the receiver is held.
    pub(crate) fn want(
        &self,
        pod: PodRef,
        asked: WatchPodCertificateRequest,
    ) -> watch::Receiver<Option<Told>> {
        let key = Wanted {
            uid: pod.uid,
            namespace: pod.namespace,
            pod: pod.name,
            account: asked.service_account,
            place: (asked.volume, asked.source_index),
            signer: asked.signer_name,
            key_type: asked.key_type,
            max_expiration_seconds: asked.max_expiration_seconds,
            annotations: asked.user_annotations.into_iter().collect(),
        };
        let mut wanted = self.wanted();
        if let Some(state) = wanted.get(&key) {
            return state.subscribe();
        }
        let state = Arc::new(State::new(None));
        let receiver = state.subscribe();
        wanted.insert(key.clone(), state.clone());
        // Nobody listens only when the process is about to end.
        let _ = self.begin.send((key, state));
        receiver
    }

    /// Sees to all that are wanted.
    pub(crate) async fn run(self, means: Means, mut begun: Begun, drain: CancellationToken) {
        let mut all = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = drain.cancelled() => return,
                Some((key, state)) = begun.recv() => all.push(self.one(&means, key, state)),
                Some(()) = all.next() => {}
            }
        }
    }

    async fn one(&self, means: &Means, key: Wanted, state: Arc<State>) {
        let mut keeping = std::pin::pin!(keep(means, &key, &state));
        let mut late = std::pin::pin!(sleep(LATE));
        let mut is_late = false;
        loop {
            tokio::select! {
                () = &mut keeping => {}
                () = &mut late, if !is_late => {
                    is_late = true;
                    unknown(&state, "");
                }
                () = unwanted(&state) => {
                    let mut wanted = self.wanted();
                    if state.receiver_count() == 0 {
                        wanted.remove(&key);
                        return;
                    }
                }
            }
        }
    }

    fn wanted(&self) -> MutexGuard<'_, BTreeMap<Wanted, Arc<State>>> {
        // Every change leaves it whole.
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is told of one, at each change.
pub(crate) fn told(
    mut known: watch::Receiver<Option<Told>>,
) -> impl Stream<Item = Result<WatchPodCertificateResponse, Status>> {
    known.mark_changed();
    stream::unfold(known, |mut known| async move {
        loop {
            known.changed().await.ok()?;
            let state = known.borrow_and_update().clone();
            if state.is_some() {
                return Some((Ok(WatchPodCertificateResponse { state }), known));
            }
        }
    })
}

/// Nobody has wanted it for a while.
async fn unwanted(state: &State) {
    state.closed().await;
    sleep(GRACE).await;
}

/// There is none now; what was told before stands.
fn unknown(state: &State, message: &str) {
    let told = Some(Told::Unknown(Unknown {
        message: message.to_owned(),
    }));
    state.send_if_modified(|known| {
        let changed = matches!(known, None | Some(Told::Unknown(_))) && *known != told;
        if changed {
            *known = told;
        }
        changed
    });
}

/// Has a certificate, and another each time, until one is refused.
async fn keep(means: &Means, of: &Wanted, state: &State) {
    let pod = PodRef {
        uid: of.uid.clone(),
        namespace: of.namespace.clone(),
        name: of.pod.clone(),
    };
    let mut age: Option<Age> = None;
    loop {
        let refresh_at = age.as_ref().map(|age| age.refresh_at);
        let having = async {
            if let Some(at) = refresh_at {
                until(at).await;
            }
            have(means, of, state).await
        };
        let (name, key, outcome) = tokio::select! {
            had = having => had,
            () = tell_age(means, &pod, age.as_mut()) => continue,
        };
        match outcome {
            Outcome::Issued(issued) => {
                age = Some(Age::of(&issued, random()));
                state.send_replace(Some(Told::Certificate(PodCertificate {
                    private_key: key,
                    certificate_chain: issued.chain,
                })));
            }
            Outcome::Refused(refused) => {
                let name = format!("{}/{name}", of.namespace);
                let words = refused.told(&name);
                means.notices.warning(&pod, "", refused.condition, words);
                let message = refused.waits();
                state.send_replace(Some(Told::Refused(Refused { message })));
                // For good: only another pod can ask again.
                return std::future::pending().await;
            }
        }
    }
}

/// Asks until there is an outcome: the request's name, the key, and what came of it.
async fn have(means: &Means, of: &Wanted, state: &State) -> (String, String, Outcome) {
    let mut backoff = Backoff::new(SHORTEST, LONGEST);
    let asks = Asks { means, of };
    loop {
        match asks.once().await {
            Ok(had) => return had,
            Err(failure) => {
                let (namespace, pod) = (&of.namespace, &of.pod);
                tracing::debug!(namespace, pod, "no certificate: {failure}");
                unknown(state, &failure.message);
                backoff.failed(None);
                backoff.wait().await;
            }
        }
    }
}

/// Tells people of a certificate that grows old with no other in sight.
async fn tell_age(means: &Means, pod: &PodRef, age: Option<&mut Age>) {
    let Some(age) = age else {
        return std::future::pending().await;
    };
    while let Some(at) = age.next() {
        until(at).await;
        for (reason, words) in age.due(Timestamp::now()) {
            means.notices.warning(pod, "", reason, words);
        }
    }
    std::future::pending().await
}

async fn until(at: Timestamp) {
    let left = at.duration_since(Timestamp::now());
    // What is due at this very moment is past in the next.
    let left = Duration::try_from(left).unwrap_or_default() + Duration::from_millis(1);
    sleep(left).await;
}
