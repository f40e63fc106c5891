//! `cargo generate` writes `proto/src/gen` anew from the .proto files, and
//! `cargo generate baseline` accepts the wire as it now is as the one not to be broken.

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
        Some(other) => Err(format!("{other}: only `baseline` is known").into()),
    };
    match done {
        Ok(what) => {
            println!("{what}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cannot generate: {error}");
            ExitCode::FAILURE
        }
    }
}
