//! Entry point of the service.

fn main() -> std::process::ExitCode {
    polylet_kit::main(
        &polylet_status_reporter::DESCRIPTOR,
        polylet_status_reporter::build,
    )
}
