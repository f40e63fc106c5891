//! Authentication and authorization by the API server: `TokenReview` and `SubjectAccessReview`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use polylet_api::kube::Api;
use polylet_api::kube::api::PostParams;
use polylet_api::{ApiConnection, ApiErrorKind, ClientConfig, ConnectError, kube};
use polylet_kit::Ctx;
use ring::digest::{SHA256, digest};
use tokio::time::timeout;

use crate::core::access::UserInfo;
use crate::core::ttl_cache::TtlCache;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A request on a broken connection is sent once more on a new one.
const MAX_ATTEMPTS: u32 = 2;

/// Why a review failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReviewError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{operation}")]
    Response {
        operation: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("{operation}: no response within {} s", TIMEOUT.as_secs())]
    Timeout { operation: &'static str },
}

/// The digest of a token: the token itself is not stored.
type TokenDigest = Vec<u8>;
/// UserInfo, verb and subresource.
type AccessKey = (UserInfo, &'static str, &'static str);

/// Reviews, cached for the configured times. Clones share the caches.
#[derive(Clone)]
pub(crate) struct Reviews {
    connection: ApiConnection,
    node: Arc<str>,
    ttls: CacheTtls,
    users: Arc<Mutex<TtlCache<TokenDigest, Option<UserInfo>>>>,
    accesses: Arc<Mutex<TtlCache<AccessKey, bool>>>,
}

#[derive(Clone, Copy)]
struct CacheTtls {
    tokens: SignedDuration,
    allowed: SignedDuration,
    denied: SignedDuration,
}

impl Reviews {
    /// `None` on a standalone node.
    pub(crate) fn from_ctx(ctx: &Ctx) -> Option<Reviews> {
        let config = ctx.config();
        let access = ClientConfig::from_config(config, "node-api")?;
        let signed = |ttl: Duration| SignedDuration::try_from(ttl).unwrap_or_default();
        let webhook = &config.kubelet.authorization.webhook;
        Some(Reviews {
            connection: ApiConnection::new(access),
            node: ctx.node_name().into(),
            ttls: CacheTtls {
                tokens: signed(config.kubelet.authentication.webhook.cache_ttl),
                allowed: signed(webhook.cache_authorized_ttl),
                denied: signed(webhook.cache_unauthorized_ttl),
            },
            users: Arc::default(),
            accesses: Arc::default(),
        })
    }

    /// The user of a token; `None` if the token is invalid.
    pub(crate) async fn authenticate(&self, token: &str) -> Result<Option<UserInfo>, ReviewError> {
        let key = digest(&SHA256, token.as_bytes()).as_ref().to_vec();
        let cached = lock(&self.users).get(&key, Timestamp::now());
        if let Some(cached) = cached {
            return Ok(cached);
        }
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let review = self.create("reviewing a token", &review).await?;
        let status = review
            .status
            .filter(|status| status.authenticated == Some(true));
        let user = status.and_then(|status| status.user).map(|user| UserInfo {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        });
        let ttl = self.ttls.tokens;
        lock(&self.users).put(key, user.clone(), ttl, Timestamp::now());
        Ok(user)
    }

    /// Whether a user may access a subresource of this node.
    pub(crate) async fn authorize(
        &self,
        user: &UserInfo,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, ReviewError> {
        let key = (user.clone(), verb, subresource);
        let cached = lock(&self.accesses).get(&key, Timestamp::now());
        if let Some(cached) = cached {
            return Ok(cached);
        }
        let non_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let extra: BTreeMap<_, _> = user.extra.clone();
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: non_empty(&user.name),
                uid: non_empty(&user.uid),
                groups: Some(user.groups.clone()),
                extra: (!extra.is_empty()).then_some(extra),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    name: Some(self.node.to_string()),
                    ..ResourceAttributes::default()
                }),
                non_resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        let review = self.create("reviewing an access", &review).await?;
        let allowed = review.status.is_some_and(|status| status.allowed);
        let ttl = if allowed {
            self.ttls.allowed
        } else {
            self.ttls.denied
        };
        lock(&self.accesses).put(key, allowed, ttl, Timestamp::now());
        Ok(allowed)
    }

    async fn create<K>(&self, operation: &'static str, review: &K) -> Result<K, ReviewError>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug,
        K: serde::Serialize + serde::de::DeserializeOwned,
    {
        let mut attempts = 1;
        loop {
            let reviews: Api<K> = Api::all(self.connection.client().await?);
            let parameters = PostParams::default();
            let failed = match timeout(TIMEOUT, reviews.create(&parameters, review)).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(source)) => source,
                Err(_) => return Err(ReviewError::Timeout { operation }),
            };
            let kind = ApiErrorKind::from_error(&failed);
            if kind == ApiErrorKind::Unauthorized {
                self.connection.invalidate();
            }
            let retry = matches!(kind, ApiErrorKind::Unreachable | ApiErrorKind::Unauthorized);
            if !retry || attempts >= MAX_ATTEMPTS {
                let source = Box::new(failed);
                return Err(ReviewError::Response { operation, source });
            }
            attempts += 1;
        }
    }
}

fn lock<T>(cache: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No panic leaves an entry half inserted.
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}
