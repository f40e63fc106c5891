//! The process; everything is in the library.
fn main() -> std::process::ExitCode {
    polylet_kit::main(&polylet_node_api::MANIFEST, polylet_node_api::build)
}
