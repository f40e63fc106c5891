//! The pod-config process.

fn main() -> std::process::ExitCode {
    polylet_kit::main(&polylet_pod_config::DESCRIPTOR, polylet_pod_config::build)
}
