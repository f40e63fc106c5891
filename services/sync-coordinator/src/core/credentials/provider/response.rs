//! `CredentialProviderRequest` and `CredentialProviderResponse`. Errors never quote the content.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_kit::config::parse_duration;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::core::credentials::Login;
use crate::core::credentials::docker_config::Logins;
use crate::core::credentials::provider::ServiceAccountToken;

/// The images that a response is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKeyType {
    /// The requested image.
    Image,
    /// All images of its registry.
    Registry,
    /// All images.
    Global,
}

/// A plugin's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderResponse {
    /// The images it is valid for.
    pub cache_key_type: CacheKeyType,
    /// How long it is valid; `None` for the configured default.
    pub cache_duration: Option<Duration>,
    /// Logins by location.
    pub logins: Logins,
}

/// An invalid response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderResponseError {
    /// Invalid JSON, or another structure.
    #[error("invalid CredentialProviderResponse JSON")]
    Json,
    /// Another kind or API version than requested.
    #[error("not a CredentialProviderResponse of {0}")]
    Kind(String),
    /// Invalid `cacheKeyType`.
    #[error("cacheKeyType must be Image, Registry or Global")]
    CacheKeyType,
    /// The service account's token is returned as a password.
    #[error(
        "credential provider plugin returned the service account token as the password which is not allowed when service account cache type is not set to 'Token'"
    )]
    TokenAsPassword,
    /// Invalid `cacheDuration`.
    #[error("cacheDuration must be a duration such as 10m")]
    CacheDuration,
}

/// The plugin's input for an image (full name without tag or digest).
pub fn request(api_version: &str, image: &str, account: Option<&ServiceAccountToken>) -> Vec<u8> {
    let mut request = Map::new();
    let mut set = |field: &str, value: Value| drop(request.insert(field.to_owned(), value));
    set("kind", json!("CredentialProviderRequest"));
    set("apiVersion", json!(api_version));
    set("image", json!(image));
    if let Some(account) = account {
        set("serviceAccountToken", json!(account.token));
        if !account.annotations.is_empty() {
            set("serviceAccountAnnotations", json!(account.annotations));
        }
    }
    let mut bytes = Value::Object(request).to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResponseDocument {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    cache_key_type: String,
    cache_duration: Option<String>,
    #[serde(default)]
    auth: Option<BTreeMap<String, Auth>>,
}

#[derive(Deserialize)]
struct Auth {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

impl ProviderResponse {
    /// Parses a plugin's output.
    pub fn parse(api_version: &str, output: &[u8]) -> Result<Self, ProviderResponseError> {
        let response: ResponseDocument =
            serde_json::from_slice(output).map_err(|_| ProviderResponseError::Json)?;
        if response.kind != "CredentialProviderResponse" || response.api_version != api_version {
            return Err(ProviderResponseError::Kind(api_version.to_owned()));
        }
        let cache_key_type = match response.cache_key_type.as_str() {
            "Image" => CacheKeyType::Image,
            "Registry" => CacheKeyType::Registry,
            "Global" => CacheKeyType::Global,
            _ => return Err(ProviderResponseError::CacheKeyType),
        };
        let cache_duration = response.cache_duration.as_deref().map(parse_duration);
        let cache_duration = cache_duration
            .transpose()
            .map_err(|_| ProviderResponseError::CacheDuration)?;
        let auth = response.auth.unwrap_or_default().into_iter();
        let login = |auth: Auth| Login {
            username: auth.username,
            password: auth.password,
            email: String::new(),
        };
        Ok(ProviderResponse {
            cache_key_type,
            cache_duration,
            logins: auth
                .map(|(location, auth)| (location, login(auth)))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

    fn response(more: &str) -> Result<ProviderResponse, ProviderResponseError> {
        let text = format!(
            r#"{{"kind": "CredentialProviderResponse", "apiVersion": "{V1}", {more}
                "auth": {{"r.example": {{"username": "u", "password": "hunter2"}}}}}}"#
        );
        ProviderResponse::parse(V1, text.as_bytes())
    }

    #[test]
    fn parses_responses() {
        let read = response(r#""cacheKeyType": "Registry", "cacheDuration": "10m","#).unwrap();
        assert_eq!(read.cache_key_type, CacheKeyType::Registry);
        assert_eq!(read.cache_duration, Some(Duration::from_secs(600)));
        assert_eq!(read.logins["r.example"].password, "hunter2");
        assert!(!format!("{read:?}").contains("hunter2"));
        assert_eq!(
            response(r#""cacheKeyType": "Image","#)
                .unwrap()
                .cache_duration,
            None
        );
        let request = String::from_utf8(request(V1, "r.example/a", None)).unwrap();
        assert!(!request.contains("serviceAccount"), "{request}");
        let account = ServiceAccountToken {
            account: Default::default(),
            annotations: [("a".to_owned(), "1".to_owned())].into(),
            token: "t".into(),
        };
        let with = super::request(V1, "r.example/a", Some(&account));
        let with: serde_json::Value = serde_json::from_slice(&with).unwrap();
        assert_eq!(with["serviceAccountToken"], "t");
        assert_eq!(with["serviceAccountAnnotations"]["a"], "1");
        assert!(request.contains("\"image\":\"r.example/a\""), "{request}");
    }

    #[test]
    fn rejects_invalid_responses() {
        assert_eq!(response(""), Err(ProviderResponseError::CacheKeyType));
        assert_eq!(
            response(r#""cacheKeyType": "All","#),
            Err(ProviderResponseError::CacheKeyType)
        );
        let forever = response(r#""cacheKeyType": "Image", "cacheDuration": "ever","#);
        assert_eq!(forever, Err(ProviderResponseError::CacheDuration));
        assert_eq!(
            ProviderResponse::parse(V1, b"no json"),
            Err(ProviderResponseError::Json)
        );
        let other =
            ProviderResponse::parse("other/v1", br#"{"kind": "CredentialProviderResponse"}"#);
        assert_eq!(other, Err(ProviderResponseError::Kind("other/v1".into())));
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = ProviderResponse::parse(V1, &bytes);
        }
    }
}
