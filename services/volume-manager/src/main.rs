//! The volume manager's process.
fn main() -> std::process::ExitCode {
    polylet_volume_manager::main()
}
