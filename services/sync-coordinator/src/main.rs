//! The sync-coordinator process; everything else is in the library.

fn main() -> std::process::ExitCode {
    polylet_kit::main(
        &polylet_sync_coordinator::DESCRIPTOR,
        polylet_sync_coordinator::build,
    )
}
