//! The process; everything is in the library.

fn main() -> std::process::ExitCode {
    polylet_kit::main(&polylet_pod_config::MANIFEST, polylet_pod_config::build)
}
