//! The process; everything is in the library.
fn main() -> std::process::ExitCode {
    polylet_kit::main(&polylet_eviction::DESCRIPTOR, polylet_eviction::build)
}
