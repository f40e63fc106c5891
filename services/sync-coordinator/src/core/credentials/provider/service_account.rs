//! Service account tokens for plugins, and the identities that share a response.

use std::collections::BTreeMap;
use std::fmt;

use crate::core::credentials::ServiceAccountRef;
use crate::core::credentials::provider::{
    ProviderResponse, ProviderResponseError, TokenAttributes,
};
use crate::core::credentials::verify::sha256;

/// A pod's service account as a plugin receives it.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceAccountToken {
    /// The service account.
    pub account: ServiceAccountRef,
    /// Its annotations that the plugin is configured to receive.
    pub annotations: BTreeMap<String, String>,
    /// A token bound to the pod. Never printed.
    pub token: String,
}

impl fmt::Debug for ServiceAccountToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Account({}/{})",
            self.account.namespace, self.account.name
        )
    }
}

/// The identities that share a response: pods of one service account with the same annotations, and
/// optionally with the same token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdentityScope {
    account: ServiceAccountRef,
    annotations: BTreeMap<String, String>,
    token: Option<String>,
}

impl TokenAttributes {
    /// The annotations for the plugin; `None` when a required one is missing, and the plugin is not
    /// executed.
    pub fn annotations(
        &self,
        found: &BTreeMap<String, String>,
    ) -> Option<BTreeMap<String, String>> {
        let entry = |key: &String| Some((key.clone(), found.get(key)?.clone()));
        let required: Option<BTreeMap<_, _>> =
            self.required_annotations.iter().map(entry).collect();
        let optional = self.optional_annotations.iter().filter_map(entry);
        Some(required?.into_iter().chain(optional).collect())
    }

    /// The scope of a cached response.
    pub fn cache_scope(&self, account: &ServiceAccountToken) -> IdentityScope {
        IdentityScope {
            token: self.cache_per_token.then(|| sha256(&account.token)),
            ..Self::request_scope(account)
        }
    }

    /// The scope of a request in flight: one token.
    pub fn request_scope(account: &ServiceAccountToken) -> IdentityScope {
        IdentityScope {
            account: account.account.clone(),
            annotations: account.annotations.clone(),
            token: Some(sha256(&account.token)),
        }
    }

    /// Refuses a response that would outlive the token in it.
    ///
    /// # Errors
    /// When the plugin returns the token as a password, and responses are cached per service account.
    pub fn check_response(
        &self,
        response: &ProviderResponse,
        account: &ServiceAccountToken,
    ) -> Result<(), ProviderResponseError> {
        let mut logins = response.logins.values();
        if !self.cache_per_token && logins.any(|login| login.password == account.token) {
            return Err(ProviderResponseError::TokenAsPassword);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::credentials::Login;
    use crate::core::credentials::provider::CacheKeyType;

    fn attributes(by_token: bool) -> TokenAttributes {
        TokenAttributes {
            requires_service_account: true,
            audience: "reg".into(),
            cache_per_token: by_token,
            required_annotations: vec!["a".into()],
            optional_annotations: vec!["b".into()],
        }
    }

    fn strings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    fn account(uid: &str, annotation: &str, token: &str) -> ServiceAccountToken {
        ServiceAccountToken {
            account: ServiceAccountRef {
                namespace: "ns".into(),
                name: "sa".into(),
                uid: uid.into(),
            },
            annotations: strings(&[("a", annotation)]),
            token: token.into(),
        }
    }

    #[test]
    fn annotations_are_selected_by_the_configuration() {
        for (found, expected) in [
            (strings(&[]), None),
            (strings(&[("b", "2")]), None),
            (
                strings(&[("a", "1"), ("c", "3")]),
                Some(strings(&[("a", "1")])),
            ),
            (
                strings(&[("a", "1"), ("b", "2")]),
                Some(strings(&[("a", "1"), ("b", "2")])),
            ),
        ] {
            assert_eq!(attributes(true).annotations(&found), expected);
        }
    }

    #[test]
    fn scopes_follow_the_cache_type() {
        let own = account("u", "1", "t");
        for (other, of_account, of_token) in [
            (account("u", "1", "t"), true, true),
            (account("u", "1", "new"), true, false),
            (account("u", "2", "t"), false, false),
            (account("another", "1", "t"), false, false),
        ] {
            for (by_token, same) in [(false, of_account), (true, of_token)] {
                let attributes = attributes(by_token);
                assert_eq!(
                    attributes.cache_scope(&own) == attributes.cache_scope(&other),
                    same,
                    "{other:?}"
                );
            }
            let together =
                TokenAttributes::request_scope(&own) == TokenAttributes::request_scope(&other);
            assert_eq!(together, of_token);
        }
        let text = format!(
            "{:?} {:?}",
            account("u", "1", "hunter2"),
            attributes(true).cache_scope(&account("u", "1", "hunter2"))
        );
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn token_as_password_requires_cache_per_token() {
        let login = Login {
            password: "t".into(),
            ..Login::default()
        };
        let response = ProviderResponse {
            cache_key_type: CacheKeyType::Image,
            cache_duration: None,
            logins: [("r.example".to_owned(), login)].into(),
        };
        let own = account("u", "1", "t");
        assert_eq!(attributes(true).check_response(&response, &own), Ok(()));
        assert_eq!(
            attributes(false).check_response(&response, &own),
            Err(ProviderResponseError::TokenAsPassword)
        );
        let other = account("u", "1", "other");
        assert_eq!(attributes(false).check_response(&response, &other), Ok(()));
    }
}
