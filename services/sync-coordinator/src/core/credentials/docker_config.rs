//! Docker configuration files: `config.json` and the older `.dockercfg`.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde::Deserialize;

use crate::core::credentials::Login;

/// Logins by location.
pub type Logins = BTreeMap<String, Login>;

/// Why a docker configuration cannot be parsed. Never quotes its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DockerConfigError {
    /// Invalid JSON, or another structure.
    #[error("not a docker configuration in JSON (line {line}, column {column})")]
    Json {
        /// Line of the error.
        line: usize,
        /// Column of the error.
        column: usize,
    },
    /// Invalid `auth` of an entry.
    #[error("auth of {location:?} must be base64 of username:password")]
    Auth {
        /// The entry's location.
        location: String,
    },
}

#[derive(Deserialize)]
struct DockerConfigDocument {
    #[serde(default)]
    auths: Option<BTreeMap<String, AuthEntry>>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct AuthEntry {
    username: String,
    password: String,
    email: String,
    auth: String,
}

/// `config.json`, and the Secret's key `.dockerconfigjson`: entries below `auths`.
pub fn parse_config_json(bytes: &[u8]) -> Result<Logins, DockerConfigError> {
    let file: DockerConfigDocument =
        serde_json::from_slice(bytes).map_err(|error| json_error(&error))?;
    logins(file.auths.unwrap_or_default())
}

/// `.dockercfg`: entries alone.
pub fn parse_dockercfg(bytes: &[u8]) -> Result<Logins, DockerConfigError> {
    logins(serde_json::from_slice(bytes).map_err(|error| json_error(&error))?)
}

/// The parser's own message may quote the content.
fn json_error(error: &serde_json::Error) -> DockerConfigError {
    DockerConfigError::Json {
        line: error.line(),
        column: error.column(),
    }
}

fn logins(entries: BTreeMap<String, AuthEntry>) -> Result<Logins, DockerConfigError> {
    let mut logins = Logins::new();
    for (location, entry) in entries {
        let mut login = Login {
            username: entry.username,
            password: entry.password,
            email: entry.email,
        };
        if !entry.auth.is_empty() {
            let decoded = decode_auth(&entry.auth);
            let (username, password) = decoded.ok_or_else(|| DockerConfigError::Auth {
                location: location.clone(),
            })?;
            login.username = username;
            login.password = password;
        }
        logins.insert(location, login);
    }
    Ok(logins)
}

/// base64 of `username:password`, with or without its padding.
fn decode_auth(auth: &str) -> Option<(String, String)> {
    let text: String = auth.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let missing = (4 - text.len() % 4) % 4;
    let padded = format!("{text}{}", "=".repeat(missing));
    let bytes: ByteString = serde_json::from_value(padded.into()).ok()?;
    let text = String::from_utf8_lossy(&bytes.0).into_owned();
    let (username, password) = text.split_once(':')?;
    Some((username.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn login(username: &str, password: &str) -> Login {
        Login {
            username: username.into(),
            password: password.into(),
            email: String::new(),
        }
    }

    #[test]
    fn parses_both_formats() {
        let entry = r#"{"a.example": {"username": "u", "password": "p"},
            "b.example": {"auth": "dXNlcjpwYXNzOndvcmQ="}, "c.example": {"auth": "dXNlcjpwYXNzd29yZA"},
            "d.example": {"username": "old", "auth": "dTpw", "other": [1]}}"#;
        let file = format!(r#"{{"auths": {entry}, "HttpHeaders": {{"a": "b"}}}}"#);
        let read = parse_config_json(file.as_bytes()).unwrap();
        assert_eq!(read, parse_dockercfg(entry.as_bytes()).unwrap());
        assert_eq!(read["a.example"], login("u", "p"));
        assert_eq!(read["b.example"], login("user", "pass:word"));
        assert_eq!(read["c.example"], login("user", "password"));
        assert_eq!(read["d.example"], login("u", "p"));
        assert_eq!(parse_config_json(b"{}").unwrap(), Logins::new());
        assert_eq!(
            parse_config_json(b"{\"auths\": null}").unwrap(),
            Logins::new()
        );
    }

    #[test]
    fn errors_quote_no_content() {
        for broken in [
            "{\"auths\": {\"a\": {\"password\": hunter2}}}",
            "{\"auths\": {\"a\": {\"auth\": \"aHVudGVyMg==\"}}}",
            "{\"auths\": {\"a\": {\"auth\": \"hunter2\"}}}",
            "{\"auths\": {\"a\": \"hunter2\"}}",
        ] {
            let error = parse_config_json(broken.as_bytes()).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(
                !text.contains("hunter2") && !text.contains("aHVu"),
                "{text}"
            );
        }
        assert!(!format!("{:?}", login("hunter2", "hunter2")).contains("hunter2"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..64), auth in ".{0,20}") {
            let _ = parse_config_json(&bytes);
            let _ = parse_dockercfg(&bytes);
            decode_auth(&auth);
        }
    }
}
