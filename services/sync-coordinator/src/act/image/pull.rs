//! Pulls on their way: one for all who wait for the same image with the same logins.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::future::{FutureExt, LocalBoxFuture, Shared, WeakShared};
use jiff::Timestamp;
use polylet_cri::{CriError, Runtime, v1};
use polylet_kit::config::KubeletConfiguration;
use tokio::sync::Semaphore;
use tonic::Code;

use crate::core::credentials::Credential;
use crate::core::pull_rate::PullRate;

/// An image that was pulled.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// The runtime's reference.
    pub image_ref: String,
    /// The login that worked; none where none was needed.
    pub used: Option<Credential>,
    /// How long it took, without the wait for its turn.
    pub took: Duration,
}

/// What is to be pulled.
pub struct Order {
    /// The image.
    pub image: v1::ImageSpec,
    /// Logins to try, in order.
    pub logins: Vec<Credential>,
    /// The sandbox of whoever asks first.
    pub sandbox: v1::PodSandboxConfig,
}

/// Waiters with other logins have a pull of their own: a pod must not get by another's password
/// what its own would not give it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    image: String,
    handler: String,
    logins: Vec<Credential>,
}

/// The registry's words, or the runtime's.
type Outcome = Result<Pulled, String>;
type Pulling = LocalBoxFuture<'static, Outcome>;

/// All pulls of the node. One lives as long as somebody waits for it, and ends in the runtime with
/// its last waiter.
pub struct Pulls {
    places: Option<Rc<Semaphore>>,
    rate: Option<Rc<RefCell<PullRate>>>,
    under_way: RefCell<HashMap<Key, WeakShared<Pulling>>>,
}

impl Pulls {
    /// As many at once and as many a second as the configuration allows.
    pub fn new(kubelet: &KubeletConfiguration, now: Timestamp) -> Self {
        let places = kubelet.parallel_image_pulls();
        let rate = PullRate::new(kubelet.registry_pull_qps, kubelet.registry_burst, now);
        Pulls {
            places: places.map(|places| Rc::new(Semaphore::new(places))),
            rate: rate.map(|rate| Rc::new(RefCell::new(rate))),
            under_way: RefCell::default(),
        }
    }

    /// The pull of an image: the one under way, or a new one.
    pub fn pull(&self, runtime: Runtime, order: Order) -> Shared<Pulling> {
        let key = Key {
            image: order.image.image.clone(),
            handler: order.image.runtime_handler.clone(),
            logins: order.logins.clone(),
        };
        let mut under_way = self.under_way.borrow_mut();
        under_way.retain(|_, pull| pull.upgrade().is_some_and(|p| p.peek().is_none()));
        if let Some(pull) = under_way.get(&key).and_then(WeakShared::upgrade) {
            return pull;
        }
        let (places, rate) = (self.places.clone(), self.rate.clone());
        let pulling = async move {
            let _place = match &places {
                Some(places) => Some(places.acquire().await.map_err(|e| e.to_string())?),
                None => None,
            };
            if let Some(rate) = rate {
                let wait = rate.borrow_mut().take(Timestamp::now());
                tokio::time::sleep(wait).await;
            }
            let began = Instant::now();
            let pulled = with_logins(&runtime, order).await;
            pulled.map(|pulled| Pulled {
                took: began.elapsed(),
                ..pulled
            })
        };
        let pull = pulling.boxed_local().shared();
        if let Some(weak) = pull.downgrade() {
            under_way.insert(key, weak);
        }
        pull
    }
}

/// Tries one login after another until one works; without any, none is sent.
async fn with_logins(runtime: &Runtime, order: Order) -> Outcome {
    let Order {
        image,
        logins,
        sandbox,
    } = order;
    if logins.is_empty() {
        let pulled = runtime.pull_image(image, None, Some(sandbox)).await;
        let image_ref = pulled.map_err(|error| words(&error))?;
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
            Err(error) => failures.push(words(&error)),
        }
    }
    Err(together(failures))
}

/// As upstream shows it: the code stands before the words, unless it says nothing.
fn words(error: &CriError) -> String {
    let code = match error.code() {
        Code::Unknown => return error.message().to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    };
    format!("rpc error: code = {code} desc = {}", error.message())
}

/// Several failures in one line, each once.
fn together(failures: Vec<String>) -> String {
    let mut known = BTreeSet::new();
    let mut distinct = failures;
    distinct.retain(|words| known.insert(words.clone()));
    match distinct.as_slice() {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::together;

    #[test]
    fn failures_are_told_once() {
        let all = |words: &[&str]| together(words.iter().map(|w| (*w).to_owned()).collect());
        assert_eq!(all(&["a", "a"]), "a");
        assert_eq!(all(&["a", "b", "a"]), "[a, b]");
    }
}
