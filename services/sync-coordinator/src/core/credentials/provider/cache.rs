//! Cache of one plugin's responses.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::core::credentials::docker_config::Logins;
use crate::core::credentials::location;
use crate::core::credentials::provider::{CacheKeyType, IdentityScope, ProviderResponse};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Image(String),
    Registry(String),
    Global,
}

/// The responses of a plugin that have not expired.
#[derive(Clone, Debug, Default)]
pub struct CredentialCache {
    entries: BTreeMap<(Key, Option<IdentityScope>), (Logins, Timestamp)>,
}

impl CredentialCache {
    /// The logins for an image in the given scope: those cached for the image, then for its registry,
    /// then for all images.
    pub fn get(
        &self,
        image: &str,
        scope: Option<&IdentityScope>,
        now: Timestamp,
    ) -> Option<&Logins> {
        let keys = [
            Key::Image(image.to_owned()),
            Key::Registry(location::registry(image).to_owned()),
            Key::Global,
        ];
        keys.into_iter().find_map(|key| {
            let (logins, until) = self.entries.get(&(key, scope.cloned()))?;
            (now <= *until).then_some(logins)
        })
    }

    /// Caches a response for its own duration, else for the plugin's default; not at all for zero.
    pub fn put(
        &mut self,
        (image, scope): (&str, Option<IdentityScope>),
        response: &ProviderResponse,
        default: Duration,
        now: Timestamp,
    ) {
        self.entries.retain(|_, (_, until)| now <= *until);
        let duration = response.cache_duration.unwrap_or(default);
        if duration.is_zero() {
            return;
        }
        let key = match response.cache_key_type {
            CacheKeyType::Image => Key::Image(image.to_owned()),
            CacheKeyType::Registry => Key::Registry(location::registry(image).to_owned()),
            CacheKeyType::Global => Key::Global,
        };
        let until = now.checked_add(duration).unwrap_or(Timestamp::MAX);
        self.entries
            .insert((key, scope), (response.logins.clone(), until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::credentials::provider::{ServiceAccountToken, TokenAttributes};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn response(key_type: CacheKeyType, cache: Option<u64>) -> ProviderResponse {
        ProviderResponse {
            cache_key_type: key_type,
            cache_duration: cache.map(Duration::from_secs),
            logins: Logins::from([(format!("{key_type:?}"), Default::default())]),
        }
    }

    fn scope(cache: &CredentialCache, image: &str, now: i64) -> Option<String> {
        cache.get(image, None, at(now))?.keys().next().cloned()
    }

    #[test]
    fn the_most_specific_unexpired_response_is_used() {
        let hour = Duration::from_secs(3600);
        let mut cache = CredentialCache::default();
        cache.put(
            ("r/a", None),
            &response(CacheKeyType::Global, None),
            hour,
            at(0),
        );
        cache.put(
            ("r/a", None),
            &response(CacheKeyType::Registry, Some(20)),
            hour,
            at(0),
        );
        cache.put(
            ("r/a", None),
            &response(CacheKeyType::Image, Some(10)),
            hour,
            at(0),
        );
        for (image, now, expected) in [
            ("r/a", 10, Some("Image")),
            ("r/a", 11, Some("Registry")),
            ("r/b", 10, Some("Registry")),
            ("r/b", 21, Some("Global")),
            ("other/b", 0, Some("Global")),
            ("r/a", 3601, None),
        ] {
            assert_eq!(
                scope(&cache, image, now).as_deref(),
                expected,
                "{image} {now}"
            );
        }
    }

    #[test]
    fn responses_are_cached_per_identity() {
        let scope = |token: &str| {
            TokenAttributes::request_scope(&ServiceAccountToken {
                account: Default::default(),
                annotations: BTreeMap::new(),
                token: token.into(),
            })
        };
        let mut cache = CredentialCache::default();
        let hour = Duration::from_secs(3600);
        let response = response(CacheKeyType::Global, None);
        cache.put(("r/a", Some(scope("t"))), &response, hour, at(0));
        assert!(cache.get("r/b", Some(&scope("t")), at(0)).is_some());
        assert!(cache.get("r/b", Some(&scope("u")), at(0)).is_none());
        assert!(cache.get("r/b", None, at(0)).is_none());
    }

    #[test]
    fn zero_duration_disables_caching() {
        let mut cache = CredentialCache::default();
        let hour = Duration::from_secs(3600);
        cache.put(
            ("r/a", None),
            &response(CacheKeyType::Image, Some(0)),
            hour,
            at(0),
        );
        let without_duration = response(CacheKeyType::Global, None);
        cache.put(("r/a", None), &without_duration, Duration::ZERO, at(0));
        assert_eq!(scope(&cache, "r/a", 0), None);
        cache.put(("r/a", None), &without_duration, Duration::MAX, at(0));
        assert!(scope(&cache, "r/a", 1).is_some());
    }
}
