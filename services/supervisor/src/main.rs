//! The command `polylet`; everything is in the library.
fn main() -> std::process::ExitCode {
    polylet_supervisor::main()
}
