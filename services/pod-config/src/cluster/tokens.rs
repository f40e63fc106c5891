//! Tokens of service accounts, bound to pods. Kept on disk, for root alone, beside the Secrets that
//! pods refer to: nearly every pod has one, and after a power loss must start without the server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use polylet_api::random;
use polylet_watch::Store;
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::{IssueTokenRequest, IssueTokenResponse, Pod};
use polylet_wire::time::to_wire;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::line::Lines;
use super::request::{self, Failure};
use crate::core::cluster::kinds::encoded;
use crate::core::cluster::token::Times;
use crate::keep::Paced;

/// What makes a token another one: pod, account, audiences, life.
type Key = (String, String, Vec<String>, i64);

#[derive(Clone, Serialize, Deserialize)]
struct Issued {
    token: String,
    expires_at: Timestamp,
    times: Times,
}

/// One token. Who asks for it while it is on its way waits for its turn, and takes the same.
#[derive(Default)]
struct Slot {
    turn: tokio::sync::Mutex<()>,
    issued: Mutex<Option<Issued>>,
}

impl Slot {
    fn get(&self) -> Option<Issued> {
        self.held().clone()
    }

    fn set(&self, issued: Option<Issued>) {
        *self.held() = issued;
    }

    fn held(&self) -> MutexGuard<'_, Option<Issued>> {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All that were issued, as they outlive the process.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct KeptTokens {
    tokens: Vec<(Key, Issued)>,
}

/// All tokens. Clones share them.
#[derive(Clone)]
pub(crate) struct Tokens {
    lines: Lines,
    pods: Store<String, Pod>,
    slots: Arc<Mutex<BTreeMap<Key, Arc<Slot>>>>,
    keep: Paced,
}

impl Tokens {
    /// With those that a former life has kept.
    pub(crate) fn new(lines: Lines, pods: Store<String, Pod>, keep: Paced) -> Tokens {
        let kept: KeptTokens = keep.load().unwrap_or_default();
        let slot = |issued| Slot {
            issued: Mutex::new(Some(issued)),
            ..Slot::default()
        };
        let kept = kept.tokens.into_iter();
        let slots = kept.map(|(key, issued)| (key, Arc::new(slot(issued))));
        Tokens {
            lines,
            pods,
            slots: Arc::new(Mutex::new(slots.collect())),
            keep,
        }
    }

    /// What is to be kept: the tokens of pods that are there.
    pub(crate) fn kept(&self) -> KeptTokens {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let there = |uid: &String| !self.pods.is_whole() || self.pods.get(uid).is_some();
        let of_pods = slots.iter().filter(|((uid, ..), _)| there(uid));
        KeptTokens {
            tokens: of_pods
                .filter_map(|(key, slot)| Some((key.clone(), slot.get()?)))
                .collect(),
        }
    }

    /// A token that is good: the one that was issued before while it is fresh, or, when no newer
    /// one can be had, the old one. While nobody can be asked, even one that has ended: a pod that
    /// starts with it gets a new one when the server is back, and could not use any before.
    pub(crate) async fn issue(
        &self,
        pod: &PodRef,
        asked: &IssueTokenRequest,
    ) -> Result<IssueTokenResponse, Failure> {
        let mut audiences = asked.audiences.clone();
        audiences.sort();
        let key = (
            pod.uid.clone(),
            asked.service_account.clone(),
            audiences,
            asked.expiration_seconds,
        );
        let slot = self.slot(key);
        let _turn = slot.turn.lock().await;
        let now = Timestamp::now();
        let held = slot.get();
        if let Some(issued) = held.as_ref().filter(|issued| issued.times.is_fresh(now)) {
            return Ok(answer(issued));
        }
        match self.ask(pod, asked).await {
            Ok(issued) => {
                let answer = answer(&issued);
                slot.set(Some(issued));
                self.keep.soon();
                Ok(answer)
            }
            // An account or pod that is gone is no reason to go on with its tokens.
            Err(failure) if !failure.refusal.passes() => {
                slot.set(None);
                self.keep.soon();
                Err(failure)
            }
            Err(failure) => {
                let Some(mut old) = held else {
                    return Err(failure);
                };
                tracing::warn!(
                    pod = format!("{}/{}", pod.namespace, pod.name),
                    "no new token: {failure}"
                );
                old.times.failed(Timestamp::now());
                let answer = answer(&old);
                slot.set(Some(old));
                Ok(answer)
            }
        }
    }

    /// The slot of a key; those of pods that are gone go.
    fn slot(&self, key: Key) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if !slots.contains_key(&key) && self.pods.is_whole() {
            let there = |uid: &String| self.pods.get(uid).is_some();
            slots.retain(|(uid, ..), slot| Arc::strong_count(slot) > 1 || there(uid));
        }
        slots.entry(key).or_default().clone()
    }

    async fn ask(&self, pod: &PodRef, asked: &IssueTokenRequest) -> Result<Issued, Failure> {
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{}/token",
            encoded(&pod.namespace),
            encoded(&asked.service_account)
        );
        let mut spec = json!({
            "audiences": asked.audiences,
            "boundObjectRef": {
                "apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid,
            },
        });
        if asked.expiration_seconds > 0 {
            spec["expirationSeconds"] = asked.expiration_seconds.into();
        }
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec,
        })
        .to_string();
        read(&self.lines.patiently(&path, Some(&body)).await?)
    }
}

#[derive(Deserialize)]
struct Answer {
    spec: Spec,
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    expiration_seconds: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: String,
    expiration_timestamp: Timestamp,
}

fn read(bytes: &[u8]) -> Result<Issued, Failure> {
    let answer: Answer = request::read(bytes)?;
    Ok(Issued {
        token: answer.status.token,
        expires_at: answer.status.expiration_timestamp,
        times: Times::of(Timestamp::now(), answer.spec.expiration_seconds, random()),
    })
}

fn answer(issued: &Issued) -> IssueTokenResponse {
    IssueTokenResponse {
        token: issued.token.clone(),
        expires_at: Some(to_wire(issued.expires_at)),
        refresh_at: Some(to_wire(issued.times.refresh_at)),
    }
}
