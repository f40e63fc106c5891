use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::authority::KeyPairFiles;
use crate::error::{HarnessError, file};

/// Credentials of the user in a kubeconfig.
pub(super) enum User<'a> {
    Certificate(&'a KeyPairFiles),
    /// Client certificate and key, embedded.
    Embedded(&'a KeyPairFiles),
    Token(&'a str),
}

/// Writes a kubeconfig with one user and one server.
pub(super) fn write(
    path: &Path,
    server: &str,
    authority: &Path,
    user: &User<'_>,
) -> Result<(), HarnessError> {
    let user = match user {
        User::Certificate(identity) => json!({
            "client-certificate": identity.certificate,
            "client-key": identity.key,
        }),
        User::Embedded(identity) => json!({
            "client-certificate-data": encoded(&identity.certificate)?,
            "client-key-data": encoded(&identity.key)?,
        }),
        User::Token(token) => json!({ "token": token }),
    };
    let text = text(server, authority, &user)?;
    file("write", path, fs::write(path, text))
}

fn encoded(path: &Path) -> Result<String, HarnessError> {
    Ok(STANDARD.encode(file("read", path, fs::read(path))?))
}

fn text(server: &str, authority: &Path, user: &Value) -> Result<String, HarnessError> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "polylet-test",
            "cluster": { "server": server, "certificate-authority": authority },
        }],
        "users": [{ "name": "user", "user": user }],
        "contexts": [{
            "name": "polylet-test",
            "context": { "cluster": "polylet-test", "user": "user" },
        }],
        "current-context": "polylet-test",
    });
    serde_yaml_ng::to_string(&config).map_err(|source| HarnessError::Yaml {
        what: "kubeconfig",
        source,
    })
}
