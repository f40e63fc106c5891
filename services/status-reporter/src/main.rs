//! The process; everything is in the library.

fn main() -> std::process::ExitCode {
    polylet_kit::main(
        &polylet_status_reporter::MANIFEST,
        polylet_status_reporter::build,
    )
}
