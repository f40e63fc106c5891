//! Service account tokens, bound to pods. They are persisted, readable by root alone like the Secrets
//! that pods refer to: nearly every pod has a token, and must start after a power loss without the
//! API server. With `keepSecrets: memory` they are not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use polylet_api::random;
use polylet_kit::config::KeepSecrets;
use polylet_kit::state_file::StateFileError;
use polylet_model::PodUid;
use polylet_watch::Store;
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::{IssueTokenRequest, IssueTokenResponse, Pod};
use polylet_wire::time::to_wire;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::connection_pool::ConnectionPool;
use super::request::{self, ApiRequestError};
use crate::core::cluster::kinds::percent_encode;
use crate::core::cluster::token::TokenLifetime;
use crate::persist::DebouncedFile;

/// Pod uid, service account, audiences, expiration seconds.
type TokenKey = (String, String, Vec<String>, i64);

#[derive(Clone, Serialize, Deserialize)]
struct CachedToken {
    token: String,
    expires_at: Timestamp,
    lifetime: TokenLifetime,
}

/// One token. Concurrent requests wait for the first one and share its result.
#[derive(Default)]
struct TokenEntry {
    request_permit: tokio::sync::Mutex<()>,
    token: Mutex<Option<CachedToken>>,
}

impl TokenEntry {
    fn get(&self) -> Option<CachedToken> {
        self.lock().clone()
    }

    fn set(&self, token: Option<CachedToken>) {
        *self.lock() = token;
    }

    fn lock(&self) -> MutexGuard<'_, Option<CachedToken>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All tokens, as persisted.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct PersistedTokens {
    tokens: Vec<(TokenKey, CachedToken)>,
}

/// The tokens by key, those of deleted pods among them until there are twice as many as needed.
#[derive(Default)]
struct TokenEntries {
    by_key: BTreeMap<TokenKey, Arc<TokenEntry>>,
    /// How many there are when unused ones are looked for again.
    clean_up_at: usize,
}

impl TokenEntries {
    /// The entry with a key. Those that are neither in use nor `needed` are removed now and then.
    fn get_or_insert(&mut self, key: TokenKey, needed: impl Fn(&str) -> bool) -> Arc<TokenEntry> {
        if let Some(entry) = self.by_key.get(&key) {
            return entry.clone();
        }
        if self.by_key.len() >= self.clean_up_at {
            self.by_key
                .retain(|(uid, ..), entry| Arc::strong_count(entry) > 1 || needed(uid));
            self.clean_up_at = 2 * self.by_key.len() + 16;
        }
        self.by_key.entry(key).or_default().clone()
    }
}

/// All tokens. Clones share them.
#[derive(Clone)]
pub(crate) struct TokenCache {
    pool: ConnectionPool,
    pods: Store<PodUid, Pod>,
    entries: Arc<Mutex<TokenEntries>>,
    file: DebouncedFile<PersistedTokens>,
    keep_secrets: KeepSecrets,
}

impl TokenCache {
    /// A cache with the tokens of an earlier process.
    pub(crate) fn new(
        pool: ConnectionPool,
        pods: Store<PodUid, Pod>,
        file: DebouncedFile<PersistedTokens>,
        keep_secrets: KeepSecrets,
    ) -> Result<TokenCache, StateFileError> {
        let persisted = match keep_secrets {
            KeepSecrets::Disk => file.load()?.unwrap_or_default(),
            KeepSecrets::Memory => {
                file.remove();
                PersistedTokens::default()
            }
        };
        let entry = |token| TokenEntry {
            token: Mutex::new(Some(token)),
            ..TokenEntry::default()
        };
        let tokens = persisted.tokens.into_iter();
        let entries = tokens.map(|(key, token)| (key, Arc::new(entry(token))));
        Ok(TokenCache {
            pool,
            pods,
            entries: Arc::new(Mutex::new(TokenEntries {
                by_key: entries.collect(),
                ..TokenEntries::default()
            })),
            file,
            keep_secrets,
        })
    }

    fn schedule_write(&self) {
        if self.keep_secrets == KeepSecrets::Disk {
            self.file.schedule();
        }
    }

    /// The tokens to persist: those of existing pods.
    pub(crate) fn to_persisted(&self) -> PersistedTokens {
        let entries = self.entries();
        let exists = |uid: &String| !self.pods.has_synced() || self.pods.contains(uid.as_str());
        let of_pods = entries.by_key.iter().filter(|((uid, ..), _)| exists(uid));
        PersistedTokens {
            tokens: of_pods
                .filter_map(|(key, entry)| Some((key.clone(), entry.get()?)))
                .collect(),
        }
    }

    /// A valid token: the cached one while it is fresh, or when it cannot be refreshed. During an
    /// outage, even an expired one: a pod that starts with it gets another when the API server is
    /// back, and could not use any before.
    pub(crate) async fn issue(
        &self,
        pod: &PodRef,
        request: &IssueTokenRequest,
    ) -> Result<IssueTokenResponse, ApiRequestError> {
        let mut audiences = request.audiences.clone();
        audiences.sort();
        let key = (
            pod.uid.clone(),
            request.service_account.clone(),
            audiences,
            request.expiration_seconds,
        );
        let entry = self.entry(key);
        let _permit = entry.request_permit.lock().await;
        let now = Timestamp::now();
        let cached = entry.get();
        if let Some(token) = cached.as_ref().filter(|token| token.lifetime.is_fresh(now)) {
            return Ok(to_response(token));
        }
        match self.request_token(pod, request).await {
            Ok(token) => {
                let response = to_response(&token);
                entry.set(Some(token));
                self.schedule_write();
                Ok(response)
            }
            // A deleted account or pod, among others, invalidates its tokens.
            Err(error) if !error.kind.is_transient() => {
                entry.set(None);
                self.schedule_write();
                Err(error)
            }
            Err(error) => {
                let Some(mut token) = cached else {
                    return Err(error);
                };
                let (namespace, name) = (&pod.namespace, &pod.name);
                tracing::warn!(
                    pod = format!("{namespace}/{name}"),
                    service_account = request.service_account,
                    %error,
                    "failed to refresh service account token; using the previous one"
                );
                token.lifetime.handle_refresh_failure(Timestamp::now());
                let response = to_response(&token);
                entry.set(Some(token));
                Ok(response)
            }
        }
    }

    fn entry(&self, key: TokenKey) -> Arc<TokenEntry> {
        let needed = |uid: &str| !self.pods.has_synced() || self.pods.contains(uid);
        self.entries().get_or_insert(key, needed)
    }

    fn entries(&self) -> MutexGuard<'_, TokenEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn request_token(
        &self,
        pod: &PodRef,
        request: &IssueTokenRequest,
    ) -> Result<CachedToken, ApiRequestError> {
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{}/token",
            percent_encode(&pod.namespace),
            percent_encode(&request.service_account)
        );
        let mut spec = json!({
            "audiences": request.audiences,
            "boundObjectRef": {
                "apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid,
            },
        });
        let expiration = Some(request.expiration_seconds).filter(|seconds| *seconds > 0);
        if let (Some(seconds), Some(fields)) = (expiration, spec.as_object_mut()) {
            fields.insert("expirationSeconds".to_owned(), seconds.into());
        }
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec,
        })
        .to_string();
        parse(&self.pool.request_for_new_pod(&path, Some(&body)).await?)
    }
}

#[derive(Deserialize)]
struct TokenRequestObject {
    spec: TokenRequestSpec,
    status: TokenRequestStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenRequestSpec {
    expiration_seconds: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenRequestStatus {
    token: String,
    expiration_timestamp: Timestamp,
}

fn parse(bytes: &[u8]) -> Result<CachedToken, ApiRequestError> {
    let TokenRequestObject { spec, status } = request::parse(bytes)?;
    Ok(CachedToken {
        token: status.token,
        expires_at: status.expiration_timestamp,
        lifetime: TokenLifetime::new(Timestamp::now(), spec.expiration_seconds, random()),
    })
}

fn to_response(token: &CachedToken) -> IssueTokenResponse {
    IssueTokenResponse {
        token: token.token.clone(),
        expires_at: Some(to_wire(token.expires_at)),
        refresh_at: Some(to_wire(token.lifetime.refresh_at)),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn key(uid: usize) -> TokenKey {
        (uid.to_string(), "default".to_owned(), Vec::new(), 3600)
    }

    #[test]
    fn tokens_of_deleted_pods_go_without_a_search_for_each_new_one() {
        let mut entries = TokenEntries::default();
        let asked = Cell::new(0);
        let used = entries.get_or_insert(key(0), |_| true);
        for uid in 1..1000 {
            entries.get_or_insert(key(uid), |_| {
                asked.set(asked.get() + 1);
                true
            });
        }
        assert_eq!(entries.by_key.len(), 1000);
        assert!(asked.get() < 2000, "{}", asked.get());
        for uid in 1000..5000 {
            entries.get_or_insert(key(uid), |of| of == "7" || of == uid.to_string());
        }
        assert!(entries.by_key.len() < 100, "{}", entries.by_key.len());
        let again = entries.get_or_insert(key(0), |_| false);
        assert!(Arc::ptr_eq(&used, &again), "one that is in use stays");
        assert!(entries.by_key.contains_key(&key(7)));
    }
}
