//! A part of Kubernetes' own end-to-end suite, by `cargo conformance -- --short`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_harness::HarnessError;
use polylet_harness::build::Profile;
use tokio::process::Command;

use crate::background::Background;
use crate::command::{self, compiling};
use crate::results::{Summary, title};

const BINARY: &str = "polylet-conformance";

/// Time limit of the specs, several times what they take.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// The suite, whose programs are being built with Go.
pub(crate) struct Conformance {
    runner: PathBuf,
    programs: Background,
}

impl Conformance {
    /// Builds the runner and begins to build the suite; `None` if the runner does not compile, which is in
    /// the summary then.
    pub(crate) async fn prepare(summary: &mut Summary) -> Result<Option<Self>, HarnessError> {
        title("building the runner of Kubernetes' own tests");
        let begun = Instant::now();
        let mut build = compiling("build");
        build.args(["--bin", BINARY]);
        if !command::succeeds(build, "cargo build").await? {
            summary.check("building the conformance runner", false, begun.elapsed());
            return Ok(None);
        }
        let runner = Profile::Demo.directory().join(BINARY);
        let mut programs = Command::new(&runner);
        programs.arg("--build-only");
        Ok(Some(Self {
            programs: Background::start("programs of Kubernetes' own tests", programs)?,
            runner,
        }))
    }

    /// Runs the specs on the programs of a node.
    pub(crate) async fn run(
        self,
        summary: &mut Summary,
        bin_dir: &Path,
    ) -> Result<(), HarnessError> {
        self.programs.end(summary).await?;
        let name = "Kubernetes' own tests, short";
        title(name);
        let begun = Instant::now();
        let mut specs = Command::new(&self.runner);
        specs.args(["--short", "--bin-dir"]).arg(bin_dir);
        let counts = command::counted(&mut specs, name, LIMIT).await?;
        summary.tests(name, counts, begun.elapsed());
        Ok(())
    }
}
