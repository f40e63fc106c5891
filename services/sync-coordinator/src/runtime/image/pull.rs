//! Image pulls: one for all steps that wait for the same image with the same credentials.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::future::{FutureExt, LocalBoxFuture, Shared, WeakShared};
use jiff::Timestamp;
use polylet_cri::{CriError, RuntimeClient, v1};
use polylet_kit::config::KubeletConfiguration;
use polylet_schedule::TokenBucket;
use tokio::sync::Semaphore;
use tonic::Code;

use crate::core::credentials::Credential;

/// A pulled image.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// The runtime's reference.
    pub image_ref: String,
    /// The credential that worked; `None` if none was needed.
    pub used: Option<Credential>,
    /// The duration of the pull without the wait for a permit.
    pub took: Duration,
}

/// An image to pull.
pub struct PullRequest {
    /// The image and its runtime handler.
    pub image: v1::ImageSpec,
    /// Credentials to try, in order.
    pub logins: Vec<Credential>,
    /// The sandbox of the first step that waits for it.
    pub sandbox: v1::PodSandboxConfig,
}

/// Steps with other credentials have a pull of their own: a pod must not get an image with the
/// credentials of another.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PullKey {
    image: String,
    handler: String,
    logins: Vec<Credential>,
}

/// The pulled image, or the error message of the registry or the runtime.
type PullResult = Result<Pulled, String>;
type PullFuture = LocalBoxFuture<'static, PullResult>;

/// All pulls of the node. A pull is cancelled in the runtime with the last step that waits for it.
pub struct ImagePuller {
    permits: Option<Rc<Semaphore>>,
    /// `registryPullQPS` and `registryBurst`. Upstream rejects a pull beyond the limit, which then
    /// waits out a back-off of ten seconds or more. Here a pull waits for its token: the registry sees
    /// the same limit, and no pod fails.
    rate: Rc<RefCell<TokenBucket<Timestamp>>>,
    in_flight: RefCell<HashMap<PullKey, WeakShared<PullFuture>>>,
}

impl ImagePuller {
    /// With the configured limits of concurrent pulls and pulls per second.
    pub fn new(kubelet: &KubeletConfiguration, now: Timestamp) -> Self {
        let permits = kubelet.parallel_image_pulls();
        let per_second = f64::from(kubelet.registry_pull_qps);
        let rate = TokenBucket::new(per_second, f64::from(kubelet.registry_burst), now);
        ImagePuller {
            permits: permits.map(|permits| Rc::new(Semaphore::new(permits))),
            rate: Rc::new(RefCell::new(rate)),
            in_flight: RefCell::default(),
        }
    }

    /// The pull of an image: the one in flight, or a new one.
    pub fn pull(&self, runtime: RuntimeClient, request: PullRequest) -> Shared<PullFuture> {
        let key = PullKey {
            image: request.image.image.clone(),
            handler: request.image.runtime_handler.clone(),
            logins: request.logins.clone(),
        };
        let mut in_flight = self.in_flight.borrow_mut();
        in_flight.retain(|_, pull| pull.upgrade().is_some_and(|p| p.peek().is_none()));
        if let Some(pull) = in_flight.get(&key).and_then(WeakShared::upgrade) {
            return pull;
        }
        let (permits, rate) = (self.permits.clone(), self.rate.clone());
        let pull = async move {
            let _permit = match &permits {
                Some(permits) => Some(permits.acquire().await.map_err(|e| e.to_string())?),
                None => None,
            };
            let wait = rate.borrow_mut().reserve(Timestamp::now());
            tokio::time::sleep(wait).await;
            let started = Instant::now();
            let pulled = with_logins(&runtime, request).await;
            pulled.map(|pulled| Pulled {
                took: started.elapsed(),
                ..pulled
            })
        };
        let pull = pull.boxed_local().shared();
        if let Some(weak) = pull.downgrade() {
            in_flight.insert(key, weak);
        }
        pull
    }
}

/// Tries one credential after another until one works; without any, pulls anonymously.
async fn with_logins(runtime: &RuntimeClient, request: PullRequest) -> PullResult {
    let PullRequest {
        image,
        logins,
        sandbox,
    } = request;
    if logins.is_empty() {
        let pulled = runtime.pull_image(image, None, Some(sandbox)).await;
        let image_ref = pulled.map_err(|error| error_text(&error))?;
        return Ok(Pulled {
            image_ref,
            used: None,
            took: Duration::ZERO,
        });
    }
    let mut failures = Vec::new();
    for credential in logins {
        let auth = v1::AuthConfig {
            username: credential.login.username.clone(),
            password: credential.login.password.clone(),
            ..Default::default()
        };
        let pulled = runtime
            .pull_image(image.clone(), Some(auth), Some(sandbox.clone()))
            .await;
        match pulled {
            Ok(image_ref) => {
                let used = Some(credential);
                let took = Duration::ZERO;
                return Ok(Pulled {
                    image_ref,
                    used,
                    took,
                });
            }
            Err(error) => failures.push(error_text(&error)),
        }
    }
    Err(join_distinct(failures))
}

/// An error as the kubelet formats it: with the gRPC code, unless it is `Unknown`.
fn error_text(error: &CriError) -> String {
    let code = match error.code() {
        Code::Unknown => return error.message().to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    };
    format!("rpc error: code = {code} desc = {}", error.message())
}

/// Several error messages in one line, each once.
fn join_distinct(failures: Vec<String>) -> String {
    let mut known = BTreeSet::new();
    let mut distinct = failures;
    distinct.retain(|message| known.insert(message.clone()));
    match distinct.as_slice() {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::join_distinct;

    #[test]
    fn equal_errors_are_reported_once() {
        let joined =
            |errors: &[&str]| join_distinct(errors.iter().map(|e| (*e).to_owned()).collect());
        assert_eq!(joined(&["a", "a"]), "a");
        assert_eq!(joined(&["a", "b", "a"]), "[a, b]");
    }
}
