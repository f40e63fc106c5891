//! A credential provider plugin, and a count of its calls.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use polylet_harness::registry::{PASSWORD, USER};
use serde_json::{Value, json};

/// A plugin with credentials for one registry that counts its calls.
pub(crate) fn plugin_settings(dir: &Path) -> Value {
    let answer = json!({
        "kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry", "cacheDuration": "1h",
        "auth": { "plugin.test/p": { "username": USER, "password": PASSWORD } },
    });
    let script = format!(
        "#!/bin/sh\nread question\ncase \"$question\" in *plugin.test/p/*) ;; *) exit 3;; esac\n\
         echo \"$COUNT\" >> {}\ncat <<'END'\n{answer}\nEND\n",
        dir.join("asked").display()
    );
    let program = dir.join("keys");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig",
        "providers": [{
            "name": "keys", "matchImages": ["*.test/p"], "defaultCacheDuration": "10m",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "env": [{ "name": "COUNT", "value": "one" }],
        }],
    });
    let file = dir.join("config.yaml");
    fs::write(&file, config.to_string()).unwrap();
    json!({ "imageCredentialProviderConfigFile": file, "imageCredentialProviderBinDir": dir })
}

pub(crate) fn plugin_calls(dir: &Path) -> usize {
    fs::read_to_string(dir.join("asked"))
        .unwrap_or_default()
        .lines()
        .count()
}
