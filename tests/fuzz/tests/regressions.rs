//! Replays all stored inputs, without an engine or instrumentation.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use polylet_fuzz::{TARGETS, Target, directory};

/// Processor time of one input. Builds for tests are not optimized.
const MAX_TIME: Duration = Duration::from_secs(10);

fn inputs(target: &Target) -> Vec<PathBuf> {
    let mut inputs = Vec::new();
    for dir in [target.regressions(), target.corpus()] {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        inputs.extend(entries.map(|entry| entry.path()));
    }
    inputs.sort();
    inputs
}

/// One test, since the limit of memory is the process's.
#[test]
fn stored_inputs_stay_within_the_limits() {
    for target in TARGETS {
        let inputs = inputs(target);
        assert!(!inputs.is_empty(), "{} has no seeds", target.name);
        for path in inputs {
            let data = fs::read(&path).expect("an input");
            // Not captured: an input that exhausts the memory ends the process.
            let _ = writeln!(std::io::stderr(), "{}", path.display());
            target.run(&data, MAX_TIME);
        }
    }
}

#[test]
fn stored_inputs_belong_to_a_target() {
    for kind in ["corpus", "regressions"] {
        for entry in fs::read_dir(directory().join(kind))
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name();
            let known = TARGETS.iter().any(|target| name == target.name);
            assert!(known, "{} is of no target", entry.path().display());
        }
    }
}
