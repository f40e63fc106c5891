//! `cargo generate` regenerates `proto/src/gen` from the .proto files;
//! `cargo generate baseline` accepts the current wire as the new compatibility baseline, additions at
//! the next level.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use polylet_tidy::baseline::{WireBaseline, levels_code};

fn main() -> ExitCode {
    let root = polylet_tidy::root();
    let done = match std::env::args().nth(1).as_deref() {
        None => polylet_tidy::wire::generate_into(&root, &root.join("proto/src/gen"))
            .map(|files| format!("wrote {files} files under proto/src/gen")),
        Some("baseline") => accept(&root),
        Some(other) => Err(format!("unknown argument {other}; expected `baseline`").into()),
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

fn accept(root: &Path) -> Result<String, Box<dyn Error>> {
    let surface = polylet_tidy::wire::surface(root)?;
    let count = surface.len();
    let baseline = WireBaseline::committed(root)?.accept(surface);
    std::fs::write(root.join("proto/baseline.txt"), baseline.to_text())?;
    let levels = root.join("proto/src/gen/levels.rs");
    std::fs::write(levels, levels_code(root)?)?;
    Ok(format!(
        "wrote {count} lines to proto/baseline.txt, and the levels"
    ))
}
