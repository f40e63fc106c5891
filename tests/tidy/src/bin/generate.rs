//! `cargo generate` regenerates `proto/src/gen` from the .proto files;
//! `cargo generate baseline` accepts the current wire as the new compatibility baseline, additions at
//! the next level, and refuses what another version would misread;
//! `cargo generate units` regenerates the units of systemd in `systemd/`;
//! `cargo generate static-pods` regenerates what the uids of static pods follow from, with Go.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use polylet_tidy::baseline::{WireBaseline, levels_code};
use polylet_tidy::static_pods;

fn main() -> ExitCode {
    let root = polylet_tidy::root();
    let done = match std::env::args().nth(1).as_deref() {
        None => polylet_tidy::wire::generate_into(&root, &root.join("proto/src/gen"))
            .map(|files| format!("wrote {files} files under proto/src/gen")),
        Some("baseline") => accept(&root),
        Some("units") => units(),
        Some("static-pods") => {
            static_pods::generate_into(&root, &root.join(static_pods::DIRECTORY))
                .map(|files| format!("wrote {files} files under {}", static_pods::DIRECTORY))
        }
        Some(other) => {
            let expected = "expected `baseline`, `units` or `static-pods`";
            Err(format!("unknown argument {other}; {expected}").into())
        }
    };
    match done {
        Ok(what) => {
            println!("{what}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("failed to generate: {error}");
            ExitCode::FAILURE
        }
    }
}

/// By a program of its own: it contains the services' descriptors, and this one has to run before the
/// services compile.
fn units() -> Result<String, Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = std::process::Command::new(cargo)
        .args(["run", "--quiet", "--bin", "polylet-units"])
        .status()?;
    match status.success() {
        true => Ok("the units are up to date".to_owned()),
        false => Err(format!("polylet-units: {status}").into()),
    }
}

fn accept(root: &Path) -> Result<String, Box<dyn Error>> {
    let surface = polylet_tidy::wire::surface(root)?;
    let count = surface.len();
    let baseline = WireBaseline::committed(root)?.accept(surface)?;
    std::fs::write(root.join("proto/baseline.txt"), baseline.to_text())?;
    let levels = root.join("proto/src/gen/levels.rs");
    std::fs::write(levels, levels_code(root)?)?;
    Ok(format!(
        "wrote {count} lines to proto/baseline.txt, and the levels"
    ))
}
