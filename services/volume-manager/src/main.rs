//! The process; everything is in the library.
fn main() -> std::process::ExitCode {
    polylet_volume_manager::main()
}
