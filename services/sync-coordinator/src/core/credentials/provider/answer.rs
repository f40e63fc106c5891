//! What a plugin is asked, and its answer. Errors say nothing of what is in it.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_kit::config::parse_duration;
use serde::Deserialize;
use serde_json::json;

use super::super::Login;
use super::super::docker_config::Logins;
use super::Account;

/// How far an answer reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKeyType {
    /// The image that was asked about.
    Image,
    /// Every image of its registry.
    Registry,
    /// Every image.
    Global,
}

/// A plugin's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// For which other images it holds.
    pub reach: CacheKeyType,
    /// How long it is good; none when the plugin leaves that to its configuration.
    pub cache: Option<Duration>,
    /// Logins by place.
    pub logins: Logins,
}

/// Why an answer is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Not JSON of this shape.
    #[error("its answer is not a CredentialProviderResponse in JSON")]
    Json,
    /// Another kind or version than was asked for.
    #[error("its answer is not a CredentialProviderResponse of {0}")]
    Kind(String),
    /// `cacheKeyType` is none of the three.
    #[error("cacheKeyType of its answer must be Image, Registry or Global")]
    CacheKeyType,
    /// The account's token is given back as a password.
    #[error(
        "credential provider plugin returned the service account token as the password which is not allowed when service account cache type is not set to 'Token'"
    )]
    Echo,
    /// `cacheDuration` is no duration.
    #[error("cacheDuration of its answer must be a duration such as 10m")]
    CacheDuration,
}

/// The question about an image (its full name without tag or digest), for the plugin's input.
pub fn request(api_version: &str, image: &str, account: Option<&Account>) -> Vec<u8> {
    let mut request = json!({
        "kind": "CredentialProviderRequest",
        "apiVersion": api_version,
        "image": image,
    });
    if let Some(account) = account {
        request["serviceAccountToken"] = json!(account.token);
        if !account.annotations.is_empty() {
            request["serviceAccountAnnotations"] = json!(account.annotations);
        }
    }
    let mut bytes = request.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
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

impl Answer {
    /// Reads a plugin's output.
    pub fn read(api_version: &str, output: &[u8]) -> Result<Self, AnswerError> {
        let response: Response = serde_json::from_slice(output).map_err(|_| AnswerError::Json)?;
        if response.kind != "CredentialProviderResponse" || response.api_version != api_version {
            return Err(AnswerError::Kind(api_version.to_owned()));
        }
        let reach = match response.cache_key_type.as_str() {
            "Image" => CacheKeyType::Image,
            "Registry" => CacheKeyType::Registry,
            "Global" => CacheKeyType::Global,
            _ => return Err(AnswerError::CacheKeyType),
        };
        let cache = response.cache_duration.as_deref().map(parse_duration);
        let cache = cache.transpose().map_err(|_| AnswerError::CacheDuration)?;
        let auth = response.auth.unwrap_or_default().into_iter();
        let login = |auth: Auth| Login {
            username: auth.username,
            password: auth.password,
            email: String::new(),
        };
        Ok(Answer {
            reach,
            cache,
            logins: auth.map(|(place, auth)| (place, login(auth))).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

    fn answer(more: &str) -> Result<Answer, AnswerError> {
        let text = format!(
            r#"{{"kind": "CredentialProviderResponse", "apiVersion": "{V1}", {more}
                "auth": {{"r.example": {{"username": "u", "password": "hunter2"}}}}}}"#
        );
        Answer::read(V1, text.as_bytes())
    }

    #[test]
    fn answers_are_read() {
        let read = answer(r#""cacheKeyType": "Registry", "cacheDuration": "10m","#).unwrap();
        assert_eq!(read.reach, CacheKeyType::Registry);
        assert_eq!(read.cache, Some(Duration::from_secs(600)));
        assert_eq!(read.logins["r.example"].password, "hunter2");
        assert!(!format!("{read:?}").contains("hunter2"));
        assert_eq!(answer(r#""cacheKeyType": "Image","#).unwrap().cache, None);
        let request = String::from_utf8(request(V1, "r.example/a", None)).unwrap();
        assert!(!request.contains("serviceAccount"), "{request}");
        let account = Account {
            of: Default::default(),
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
    fn what_is_no_answer_is_told() {
        assert_eq!(answer(""), Err(AnswerError::CacheKeyType));
        assert_eq!(
            answer(r#""cacheKeyType": "All","#),
            Err(AnswerError::CacheKeyType)
        );
        let forever = answer(r#""cacheKeyType": "Image", "cacheDuration": "ever","#);
        assert_eq!(forever, Err(AnswerError::CacheDuration));
        assert_eq!(Answer::read(V1, b"no json"), Err(AnswerError::Json));
        let other = Answer::read("other/v1", br#"{"kind": "CredentialProviderResponse"}"#);
        assert_eq!(other, Err(AnswerError::Kind("other/v1".into())));
    }

    proptest! {
        #[test]
        fn foreign_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Answer::read(V1, &bytes);
        }
    }
}
