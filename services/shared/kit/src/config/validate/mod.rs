//! Validation of values.

mod choices;
mod labels;
mod limits;
mod reserved;
mod tracing;

use super::problems::Problems;
use super::tls;
use super::{KubeletConfiguration, PolyletConfiguration};

/// Upstream's validation for Linux.
pub(super) fn kubelet(config: &KubeletConfiguration, problems: &mut Problems) {
    limits::images(config, problems);
    reserved::eviction(config, problems);
    limits::numbers(config, problems);
    choices::choices(config, problems);
    choices::addresses(config, problems);
    tls::validate(config, problems);
    limits::shutdown(config, problems);
    reserved::resources(config, problems);
    tracing::export(config, problems);
}

/// Validation of Polylet's own document.
pub(super) fn polylet(config: &PolyletConfiguration, problems: &mut Problems) {
    let name = &config.node_name;
    let is_valid = !name.is_empty()
        && name.len() <= 253
        && name.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        });
    if !is_valid {
        let allowed = "allowed are lower-case letters, digits, '-' and '.', up to 253";
        problems.not_allowed("nodeName", format!("{name:?}"), allowed);
    }
    problems.one_of("cloudProvider", &config.cloud_provider, &["", "external"]);
    if let Some(second) = config.secondary_node_ip
        && config
            .node_ip
            .is_none_or(|first| first.is_ipv4() == second.is_ipv4())
    {
        let allowed = "allowed is an address of the other family than nodeIP's";
        problems.not_allowed("secondaryNodeIP", second, allowed);
    }
    labels::node(&config.node_labels, problems);
    for (field, path) in [
        ("runDirectory", &config.run_directory),
        ("stateDirectory", &config.state_directory),
        ("rootDirectory", &config.root_directory),
        ("devicePluginDirectory", &config.device_plugin_directory),
        ("containerLogsDirectory", &config.container_logs_directory),
    ] {
        if !path.is_absolute() {
            problems.not_allowed(field, format!("{path:?}"), "allowed is an absolute path");
        }
    }
    let (file, dir) = (
        &config.image_credential_provider_config_file,
        &config.image_credential_provider_bin_dir,
    );
    if file.is_some() != dir.is_some() {
        let field = "imageCredentialProviderConfigFile";
        problems.add(
            field,
            format!("{field} and imageCredentialProviderBinDir go together"),
        );
    }
    // A Unix socket's path must fit into 108 bytes, the longest service name included.
    let longest = "/status-reporter.sock.new".len();
    if config.run_directory.as_os_str().len() + longest > 107 {
        let value = config.run_directory.display();
        problems.not_allowed("runDirectory", value, "allowed are up to 82 bytes");
    }
    let registration = "/kubelet.sock";
    if config.device_plugin_directory.as_os_str().len() + registration.len() > 107 {
        let value = config.device_plugin_directory.display();
        problems.not_allowed("devicePluginDirectory", value, "allowed are up to 94 bytes");
    }
    if let Some(parallel_starts) = config.parallel_starts {
        problems.within("parallelStarts", parallel_starts, 1, 1000);
    }
    problems.at_least("traceRing.maxSpans", config.trace_ring.max_spans, 1);
    problems.at_least("traceRing.maxBytes", config.trace_ring.max_bytes, 1024);
    tracing::polylet(&config.tracing, problems);
}
