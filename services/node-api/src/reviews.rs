//! Asking the API server who somebody is (TokenReview) and what they may do (SubjectAccessReview).

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
use polylet_api::{Access, ConnectError, Connection, Refusal, kube};
use polylet_kit::Ctx;
use ring::digest::{SHA256, digest};
use tokio::time::timeout;

use crate::core::access::User;
use crate::core::cache::Cache;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);
/// A connection that broke is tried once more on a new one.
const TRIES: u32 = 2;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReviewError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{what}")]
    Refused {
        what: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("{what}: no answer within {} s", LIMIT.as_secs())]
    Silent { what: &'static str },
}

/// A token by its digest: the token itself is not kept.
type TokenKey = Vec<u8>;
/// Who, verb, subresource.
type AccessKey = (User, &'static str, &'static str);

/// Asks, and keeps answers for as long as the configuration says. Clones share them.
#[derive(Clone)]
pub(crate) struct Reviews {
    connection: Connection,
    node: Arc<str>,
    lives: Lives,
    users: Arc<Mutex<Cache<TokenKey, Option<User>>>>,
    rights: Arc<Mutex<Cache<AccessKey, bool>>>,
}

#[derive(Clone, Copy)]
struct Lives {
    tokens: SignedDuration,
    allowed: SignedDuration,
    denied: SignedDuration,
}

impl Reviews {
    /// `None` on a node that stands alone.
    pub(crate) fn of(ctx: &Ctx) -> Option<Reviews> {
        let config = ctx.config();
        let access = Access::of(config, "node-api")?;
        let signed = |life: Duration| SignedDuration::try_from(life).unwrap_or_default();
        let rights = &config.kubelet.authorization.webhook;
        Some(Reviews {
            connection: Connection::new(access),
            node: ctx.node_name().into(),
            lives: Lives {
                tokens: signed(config.kubelet.authentication.webhook.cache_ttl),
                allowed: signed(rights.cache_authorized_ttl),
                denied: signed(rights.cache_unauthorized_ttl),
            },
            users: Arc::default(),
            rights: Arc::default(),
        })
    }

    /// Whose token it is; `None` when it is nobody's.
    pub(crate) async fn user(&self, token: &str) -> Result<Option<User>, ReviewError> {
        let key = digest(&SHA256, token.as_bytes()).as_ref().to_vec();
        let known = lock(&self.users).get(&key, Timestamp::now());
        if let Some(known) = known {
            return Ok(known);
        }
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let answer = self.ask("reviewing a token", &review).await?;
        let status = answer
            .status
            .filter(|status| status.authenticated == Some(true));
        let user = status.and_then(|status| status.user).map(|user| User {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        });
        let life = self.lives.tokens;
        lock(&self.users).put(key, user.clone(), life, Timestamp::now());
        Ok(user)
    }

    /// Whether somebody may do this to a subresource of this node.
    pub(crate) async fn may(
        &self,
        user: &User,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, ReviewError> {
        let key = (user.clone(), verb, subresource);
        let known = lock(&self.rights).get(&key, Timestamp::now());
        if let Some(known) = known {
            return Ok(known);
        }
        let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let extra: BTreeMap<_, _> = user.extra.clone();
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: filled(&user.name),
                uid: filled(&user.uid),
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
        let answer = self.ask("reviewing an access", &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        let life = if allowed {
            self.lives.allowed
        } else {
            self.lives.denied
        };
        lock(&self.rights).put(key, allowed, life, Timestamp::now());
        Ok(allowed)
    }

    async fn ask<K>(&self, what: &'static str, review: &K) -> Result<K, ReviewError>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug,
        K: serde::Serialize + serde::de::DeserializeOwned,
    {
        let mut tries = 1;
        loop {
            let reviews: Api<K> = Api::all(self.connection.client().await?);
            let parameters = PostParams::default();
            let failed = match timeout(LIMIT, reviews.create(&parameters, review)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(source)) => source,
                Err(_) => return Err(ReviewError::Silent { what }),
            };
            let refusal = Refusal::of(&failed);
            if refusal == Refusal::Unauthorized {
                self.connection.refused();
            }
            let again = matches!(refusal, Refusal::Unreachable | Refusal::Unauthorized);
            if !again || tries >= TRIES {
                let source = Box::new(failed);
                return Err(ReviewError::Refused { what, source });
            }
            tries += 1;
        }
    }
}

fn lock<T>(cache: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Answers are put in whole.
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}
