//! Entry point of the service.

fn main() -> std::process::ExitCode {
    polylet_kit::main(&polylet_node_api::DESCRIPTOR, polylet_node_api::build)
}
