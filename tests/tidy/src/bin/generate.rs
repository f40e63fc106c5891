//! `cargo generate` regenerates `proto/src/gen` from the .proto files;
//! `cargo generate baseline` accepts the current wire as the new compatibility baseline.

use std::process::ExitCode;

fn main() -> ExitCode {
    let root = polylet_tidy::root();
    let done = match std::env::args().nth(1).as_deref() {
        None => polylet_tidy::wire::generate_into(&root, &root.join("proto/src/gen"))
            .map(|files| format!("wrote {files} files under proto/src/gen")),
        Some("baseline") => polylet_tidy::wire::surface(&root).and_then(|lines| {
            std::fs::write(root.join("proto/baseline.txt"), lines.join("\n") + "\n")?;
            Ok(format!("wrote {} lines to proto/baseline.txt", lines.len()))
        }),
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
