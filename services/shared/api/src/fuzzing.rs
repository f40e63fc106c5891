//! Private parsers of foreign data, for the fuzz targets in `tests/fuzz`.

use std::path::Path;

use crate::credential_files::CredentialFiles;
use crate::{client_cert, exec_credential, kubeconfig, proxy};

/// Reads a kubeconfig and what it refers to.
pub fn kubeconfig(path: &Path) {
    let Ok(mut read) = kubeconfig::read(path) else {
        return;
    };
    CredentialFiles::new(path, Some(&read)).with(Some(path));
    client_cert::apply(&mut read, path);
    kubeconfig::current_user(&read);
}

/// Parses the output of a credential plugin.
pub fn plugin_output(output: &[u8], version: &str) {
    // Most outputs are not credentials.
    let _ = exec_credential::parse(output, version);
}

/// Reads the expiry of a certificate file.
pub fn certificate(pem: &[u8]) {
    client_cert::expiry(pem);
}

/// Selects the proxy of a server by the environment.
pub fn proxy(server: &str, proxy: &str, no_proxy: &str) {
    let Ok(server) = server.parse() else {
        return;
    };
    let variable = |name: &str| match name {
        "HTTPS_PROXY" | "HTTP_PROXY" => Some(proxy.to_owned()),
        "NO_PROXY" => Some(no_proxy.to_owned()),
        _ => None,
    };
    for url in [None, Some(proxy)] {
        if let Some(setting) = proxy::select(url, &server, variable) {
            let shown = setting.proxy.map(|proxy| proxy.to_string());
            drop(shown.map_err(|error| polylet_kit::report(&error)));
        }
    }
}
