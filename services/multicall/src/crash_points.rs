//! The same programs with crash points, for tests.
fn main() -> std::process::ExitCode {
    polylet_crash_points::install();
    polylet_multicall::main()
}
