//! Writes the generated files of `systemd/`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let directory = polylet_packaging::root().join("systemd");
    match polylet_packaging::write(&directory) {
        Ok(count) => {
            println!("wrote {count} files to systemd");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("failed to write {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}
