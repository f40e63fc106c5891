//! Tokens of service accounts, bound to pods. They are in memory alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use polylet_api::Refusal;
use polylet_kit::report;
use polylet_watch::Store;
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::{IssueTokenRequest, IssueTokenResponse, Pod};
use polylet_wire::time::to_wire;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::follow::random;
use super::line::Lines;
use super::request::{self, Failure};
use crate::core::cluster::kinds::encoded;
use crate::core::cluster::token::Times;

/// Right after a pod was bound, the server does not know yet that its account concerns us.
const UNKNOWN_FOR: Duration = Duration::from_secs(2);

/// What makes a token another one: pod, account, audiences, life.
type Key = (String, String, Vec<String>, i64);

struct Issued {
    token: String,
    expires_at: Timestamp,
    times: Times,
}

/// One token; who asks for it while it is on its way waits for the same.
type Slot = Arc<tokio::sync::Mutex<Option<Issued>>>;

/// All tokens. Clones share them.
#[derive(Clone)]
pub(crate) struct Tokens {
    lines: Lines,
    pods: Store<String, Pod>,
    slots: Arc<Mutex<BTreeMap<Key, Slot>>>,
}

impl Tokens {
    pub(crate) fn new(lines: Lines, pods: Store<String, Pod>) -> Tokens {
        Tokens {
            lines,
            pods,
            slots: Arc::default(),
        }
    }

    /// A token that is good: the one that was issued before while it is fresh, or, when no newer
    /// one can be had, valid.
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
        let mut held = slot.lock().await;
        let now = Timestamp::now();
        if let Some(issued) = held.as_ref().filter(|issued| issued.times.is_fresh(now)) {
            return Ok(answer(issued));
        }
        match self.ask(pod, asked).await {
            Ok(issued) => Ok(answer(held.insert(issued))),
            Err(failure) => {
                let now = Timestamp::now();
                let old = held.as_mut().filter(|issued| issued.times.is_valid(now));
                // An account or pod that is gone is no reason to go on with its tokens.
                let Some(old) = old.filter(|_| failure.refusal.passes()) else {
                    *held = None;
                    return Err(failure);
                };
                tracing::warn!(
                    pod = format!("{}/{}", pod.namespace, pod.name),
                    "no new token: {failure}"
                );
                old.times.failed(now);
                Ok(answer(old))
            }
        }
    }

    /// The slot of a key; those of pods that are gone go.
    fn slot(&self, key: Key) -> Slot {
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
        let begun = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            match self.post(&path, body.clone()).await {
                Err(failure)
                    if failure.refusal == Refusal::Forbidden && begun.elapsed() < UNKNOWN_FOR =>
                {
                    sleep(pause).await;
                    pause *= 2;
                }
                told => return told,
            }
        }
    }

    async fn post(&self, path: &str, body: String) -> Result<Issued, Failure> {
        let Some(connection) = self.lines.first() else {
            return Err(Failure::unreachable("there is no connection"));
        };
        let client = connection.client().await;
        let client = client.map_err(|error| Failure::unreachable(report(&error)))?;
        let _turn = self.lines.turn().await;
        match request::post(&client, path, body).await {
            Ok(bytes) => read(&bytes),
            Err(failure) => {
                if failure.refusal == Refusal::Unauthorized {
                    connection.refused();
                }
                Err(failure)
            }
        }
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
