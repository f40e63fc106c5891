//! Entry point of the command `polylet`.

fn main() -> std::process::ExitCode {
    polylet_supervisor::main()
}
