//! The volume manager's process.
fn main() -> std::process::ExitCode {
    polylet_kit::main(
        &polylet_volume_manager::DESCRIPTOR,
        polylet_volume_manager::build,
    )
}
