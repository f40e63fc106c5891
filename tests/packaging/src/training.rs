//! What a node does while programs are profiled: the benchmarks, run with programs that count.

use std::path::Path;
use std::process::Command;

use crate::command::{CommandError, run};

/// A node by itself and in a cluster, with and without events of the runtime, starts, probes, exits, restarts
/// and deletions; pods that come and go, and a minute at rest, for what a node does only now and then.
const BENCHMARKS: [&[&str]; 4] = [
    &["--memory", "--burst", "100", "--debian"],
    &[
        "--large", "--burst", "100", "--churn", "100", "--rest", "60",
    ],
    &["--calls", "--burst", "30"],
    &["--starts", "10", "--burst", "30", "--rest", "5"],
];

/// Installs a multicall program in `directory` under the names of all services, and runs the benchmarks with it.
pub(crate) fn run_benchmarks(program: &Path, directory: &Path) -> Result<(), CommandError> {
    let mut install = Command::new(program);
    install.arg("--install").arg(directory);
    run(install)?;
    for arguments in BENCHMARKS {
        eprintln!("running the benchmark {}", arguments.join(" "));
        let mut bench = Command::new("cargo");
        bench
            .args(["run", "--quiet", "--profile", "demo", "--bin"])
            .args(["polylet-bench", "--"])
            .args(arguments)
            .arg("--bin-dir")
            .arg(directory)
            .current_dir(crate::root());
        run(bench)?;
    }
    Ok(())
}
