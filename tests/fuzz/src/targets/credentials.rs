//! Credentials: kubeconfigs and their plugins, docker configurations, credential providers.

use std::cell::LazyCell;

use polylet_api::ClientConfig;
use polylet_sync_coordinator::core::credentials::keyring::Keyring;
use polylet_sync_coordinator::core::credentials::provider::{config, response};
use polylet_sync_coordinator::core::credentials::{CredentialSource, docker_config, location};

use crate::input::{halves, select, text};
use crate::scratch::FuzzScratch;

thread_local! {
    static SCRATCH: LazyCell<FuzzScratch> = LazyCell::new(FuzzScratch::new);
}

/// A kubeconfig, the output of its plugin, certificates, and proxies of the environment.
pub(super) fn kubeconfig(data: &[u8]) {
    let (kind, data) = select(data, 4);
    match kind {
        0 => SCRATCH.with(|scratch| {
            let path = scratch.write("kubeconfig", data);
            let config = ClientConfig::new(path, "fuzz");
            config.server_and_ca();
            polylet_api::fuzzing::kubeconfig(config.kubeconfig());
        }),
        1 => polylet_api::fuzzing::plugin_output(data, "client.authentication.k8s.io/v1"),
        2 => polylet_api::fuzzing::certificate(data),
        _ => {
            let (server, environment) = halves(data);
            let (proxy, list) = halves(environment);
            polylet_api::fuzzing::proxy(text(server), text(proxy), text(list));
        }
    }
}

/// Credentials for images, and the patterns that select them.
pub(super) fn credentials(data: &[u8]) {
    let (kind, data) = select(data, 5);
    let (first, second) = halves(data);
    match kind {
        0 | 1 => {
            let logins = match kind {
                0 => docker_config::parse_config_json(first),
                _ => docker_config::parse_dockercfg(first),
            };
            if let Ok(logins) = logins {
                let mut keyring = Keyring::default();
                keyring.add(&CredentialSource::Node, logins);
                keyring.lookup(text(second));
                keyring.lookup("registry.example/app:1");
            }
        }
        2 => {
            let (pattern, image) = (text(first), text(second));
            location::normalize(pattern);
            location::matches(pattern, image, &mut location::MatchBudget::default());
            location::registry(image);
            location::is_docker_hub(image);
        }
        3 => {
            let files = [("a.yaml".to_owned(), text(first).to_owned())];
            for provider in config::parse(&files).into_iter().flatten() {
                provider.matches_image(text(second));
            }
        }
        // Most outputs are not responses.
        _ => drop(response::ProviderResponse::parse(
            "credentialprovider.kubelet.k8s.io/v1",
            data,
        )),
    }
}
