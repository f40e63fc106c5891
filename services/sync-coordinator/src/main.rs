//! The process; everything is in the library.

fn main() -> std::process::ExitCode {
    polylet_kit::main(
        &polylet_sync_coordinator::MANIFEST,
        polylet_sync_coordinator::build,
    )
}
