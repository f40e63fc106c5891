//! The targets, by subject.

mod api_objects;
mod configuration;
mod credentials;
mod logs;
mod machine;
mod manifests;
mod scaled;
mod services;
mod state_files;
mod text;
mod traces;
mod volumes;

use crate::Target;

/// All targets.
pub const TARGETS: &[Target] = &[
    target("manifest", 16 << 10, manifests::manifest),
    target("pod", 16 << 10, manifests::pod),
    target("scaled_pod", 4 << 10, scaled::pod),
    target("scaled_text", 1 << 10, scaled::text),
    target("api_object", 16 << 10, api_objects::api_object),
    target("configuration", 16 << 10, configuration::configuration),
    target("kubeconfig", 8 << 10, credentials::kubeconfig),
    target("credentials", 8 << 10, credentials::credentials),
    target("log", 32 << 10, logs::log),
    target("machine", 16 << 10, machine::machine),
    target("text", 8 << 10, text::text),
    target("trace_file", 16 << 10, traces::trace_file),
    target("state_file", 16 << 10, state_files::state_file),
    target("coordinator", 16 << 10, services::coordinator::run),
    target("status_reporter", 16 << 10, services::status_reporter::run),
    target("device_manager", 16 << 10, services::device_manager::run),
    target("prober", 16 << 10, services::prober::run),
    target("eviction", 16 << 10, services::eviction::run),
    target("pleg", 16 << 10, services::pleg::run),
    target("volume_manager", 16 << 10, volumes::volume_manager),
    target("requests", 8 << 10, services::requests::run),
];

const fn target(name: &'static str, max_length: usize, run: fn(&[u8])) -> Target {
    Target {
        name,
        max_length,
        run,
    }
}
