//! The program that is shipped.
fn main() -> std::process::ExitCode {
    polylet_multicall::main()
}
