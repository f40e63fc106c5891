//! What `docker login` writes: `config.json` and the older `.dockercfg`.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde::Deserialize;

use super::Login;

/// Logins by the places they are for.
pub type Logins = BTreeMap<String, Login>;

/// Why a docker configuration is none. Says nothing of what is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DockerConfigError {
    /// Not JSON, or not of this shape.
    #[error("not a docker configuration in JSON (line {line}, column {column})")]
    Json {
        /// Where reading ended.
        line: usize,
        /// Where in the line.
        column: usize,
    },
    /// The `auth` of an entry.
    #[error("auth of {place:?} must be base64 of username:password")]
    Auth {
        /// The entry.
        place: String,
    },
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    auths: Option<BTreeMap<String, Entry>>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Entry {
    username: String,
    password: String,
    email: String,
    auth: String,
}

/// `config.json`, and the Secret's key `.dockerconfigjson`: entries below `auths`.
pub fn config_json(bytes: &[u8]) -> Result<Logins, DockerConfigError> {
    let file: File = serde_json::from_slice(bytes).map_err(|error| not_json(&error))?;
    logins(file.auths.unwrap_or_default())
}

/// `.dockercfg`: entries alone.
pub fn dockercfg(bytes: &[u8]) -> Result<Logins, DockerConfigError> {
    logins(serde_json::from_slice(bytes).map_err(|error| not_json(&error))?)
}

/// The parser's own words may quote what it read.
fn not_json(error: &serde_json::Error) -> DockerConfigError {
    DockerConfigError::Json {
        line: error.line(),
        column: error.column(),
    }
}

fn logins(entries: BTreeMap<String, Entry>) -> Result<Logins, DockerConfigError> {
    let mut logins = Logins::new();
    for (place, entry) in entries {
        let mut login = Login {
            username: entry.username,
            password: entry.password,
            email: entry.email,
        };
        if !entry.auth.is_empty() {
            let both = decode(&entry.auth);
            let (username, password) = both.ok_or_else(|| DockerConfigError::Auth {
                place: place.clone(),
            })?;
            login.username = username;
            login.password = password;
        }
        logins.insert(place, login);
    }
    Ok(logins)
}

/// base64 of `username:password`, with or without its padding.
fn decode(auth: &str) -> Option<(String, String)> {
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
    fn both_files_are_read() {
        let entry = r#"{"a.example": {"username": "u", "password": "p"},
            "b.example": {"auth": "dXNlcjpwYXNzOndvcmQ="}, "c.example": {"auth": "dXNlcjpwYXNzd29yZA"},
            "d.example": {"username": "old", "auth": "dTpw", "other": [1]}}"#;
        let file = format!(r#"{{"auths": {entry}, "HttpHeaders": {{"a": "b"}}}}"#);
        let read = config_json(file.as_bytes()).unwrap();
        assert_eq!(read, dockercfg(entry.as_bytes()).unwrap());
        assert_eq!(read["a.example"], login("u", "p"));
        assert_eq!(read["b.example"], login("user", "pass:word"));
        assert_eq!(read["c.example"], login("user", "password"));
        assert_eq!(read["d.example"], login("u", "p"));
        assert_eq!(config_json(b"{}").unwrap(), Logins::new());
        assert_eq!(config_json(b"{\"auths\": null}").unwrap(), Logins::new());
    }

    #[test]
    fn errors_quote_nothing() {
        for broken in [
            "{\"auths\": {\"a\": {\"password\": hunter2}}}",
            "{\"auths\": {\"a\": {\"auth\": \"aHVudGVyMg==\"}}}",
            "{\"auths\": {\"a\": {\"auth\": \"hunter2\"}}}",
            "{\"auths\": {\"a\": \"hunter2\"}}",
        ] {
            let error = config_json(broken.as_bytes()).unwrap_err();
            let said = format!("{error} {error:?}");
            assert!(
                !said.contains("hunter2") && !said.contains("aHVu"),
                "{said}"
            );
        }
        assert!(!format!("{:?}", login("hunter2", "hunter2")).contains("hunter2"));
    }

    proptest! {
        #[test]
        fn foreign_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..64), auth in ".{0,20}") {
            let _ = config_json(&bytes);
            let _ = dockercfg(&bytes);
            decode(&auth);
        }
    }
}
