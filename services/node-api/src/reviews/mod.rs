//! Authentication and authorization by the API server: `TokenReview` and `SubjectAccessReview`.

mod group;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

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
use group::{ReviewGroup, ReviewResult};

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A request on a broken connection is sent once more on a new one.
const MAX_ATTEMPTS: u32 = 2;
/// Longer tokens are rejected without a review. Those of service accounts have about 1 KiB.
const MAX_TOKEN_BYTES: usize = 16 << 10;

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
    #[error("no review within {} s: too many are in progress", TIMEOUT.as_secs())]
    Busy,
    #[error("too many reviews in a short time")]
    TooMany,
}

/// The digest of a token: the token itself is not stored.
type TokenDigest = Vec<u8>;
/// UserInfo, verb and subresource.
type AccessKey = (UserInfo, &'static str, &'static str);

/// Reviews, cached for the configured times. Clones share the caches.
#[derive(Clone)]
pub(crate) struct Reviews {
    api: ReviewApi,
    node: Arc<str>,
    ttls: CacheTtls,
    users: ReviewGroup<TokenDigest, Option<UserInfo>>,
    accesses: ReviewGroup<AccessKey, bool>,
}

#[derive(Clone, Copy)]
struct CacheTtls {
    tokens: Duration,
    allowed: Duration,
    denied: Duration,
}

impl Reviews {
    /// `None` on a standalone node.
    pub(crate) fn from_ctx(ctx: &Ctx) -> Option<Reviews> {
        let config = ctx.config();
        let access = ClientConfig::from_config(config, "node-api")?;
        let webhook = &config.kubelet.authorization.webhook;
        let ttls = CacheTtls {
            tokens: config.kubelet.authentication.webhook.cache_ttl,
            allowed: webhook.cache_authorized_ttl,
            denied: webhook.cache_unauthorized_ttl,
        };
        Some(Reviews::new(access, ctx.node_name(), ttls))
    }

    fn new(access: ClientConfig, node: &str, ttls: CacheTtls) -> Reviews {
        Reviews {
            api: ReviewApi {
                connection: ApiConnection::new(access),
            },
            node: node.into(),
            ttls,
            users: ReviewGroup::new(),
            accesses: ReviewGroup::new(),
        }
    }

    /// The user of a token that a client sent; `None` if the token is invalid.
    pub(crate) async fn authenticate(
        &self,
        token: &str,
        client: IpAddr,
    ) -> Result<Option<UserInfo>, Arc<ReviewError>> {
        if token.len() > MAX_TOKEN_BYTES {
            return Ok(None);
        }
        let key = digest(&SHA256, token.as_bytes()).as_ref().to_vec();
        let review = || {
            let review = TokenReview {
                spec: TokenReviewSpec {
                    token: token.to_owned(),
                    audiences: None,
                },
                ..TokenReview::default()
            };
            let (api, ttl) = (self.api.clone(), self.ttls.tokens);
            async move {
                let review = api.create("reviewing a token", &review).await?;
                let user = reviewed_user(review);
                Ok(ReviewResult {
                    accepted: user.is_some(),
                    value: user,
                    ttl,
                })
            }
        };
        self.users.get(key, client, review).await
    }

    /// Whether a user may access a subresource of this node.
    pub(crate) async fn authorize(
        &self,
        user: &UserInfo,
        verb: &'static str,
        subresource: &'static str,
        client: IpAddr,
    ) -> Result<bool, Arc<ReviewError>> {
        let key = (user.clone(), verb, subresource);
        let review = || {
            let review = access_review(user, verb, subresource, &self.node);
            let (api, ttls) = (self.api.clone(), self.ttls);
            async move {
                let review = api.create("reviewing an access", &review).await?;
                let allowed = review.status.is_some_and(|status| status.allowed);
                Ok(ReviewResult {
                    value: allowed,
                    accepted: allowed,
                    ttl: if allowed { ttls.allowed } else { ttls.denied },
                })
            }
        };
        self.accesses.get(key, client, review).await
    }
}

fn reviewed_user(review: TokenReview) -> Option<UserInfo> {
    let status = review
        .status
        .filter(|status| status.authenticated == Some(true))?;
    let user = status.user?;
    Some(UserInfo {
        name: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    })
}

fn access_review(
    user: &UserInfo,
    verb: &str,
    subresource: &str,
    node: &str,
) -> SubjectAccessReview {
    let non_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let extra = user.extra.clone();
    SubjectAccessReview {
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
                name: Some(node.to_owned()),
                ..ResourceAttributes::default()
            }),
            non_resource_attributes: None,
        },
        ..SubjectAccessReview::default()
    }
}

/// Requests reviews.
#[derive(Clone)]
struct ReviewApi {
    connection: ApiConnection,
}

impl ReviewApi {
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
