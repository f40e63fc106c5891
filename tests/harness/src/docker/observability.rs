use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::cache::{self, Fingerprint};
use crate::cluster::programs::go;
use crate::error::{HarnessError, file};
use crate::machine;

/// Go packages and the names of their programs.
const SOURCES: [(&str, &str); 2] = [
    ("collector", "./collector"),
    ("jaeger", "github.com/jaegertracing/jaeger/cmd/jaeger"),
];

/// An OpenTelemetry collector, and Jaeger without its user interface, which its Go module does not contain.
/// Built from the Go module `tests/observability` and cached in the build directory.
#[derive(Debug, Clone)]
pub struct ObservabilityPrograms {
    /// The OpenTelemetry collector.
    pub collector: PathBuf,
    /// Jaeger, the trace viewer.
    pub viewer: PathBuf,
}

impl ObservabilityPrograms {
    /// Builds the programs: about ten minutes the first time, nothing afterwards.
    ///
    /// # Errors
    /// Fails if Go is missing or too old, or a program cannot be built.
    pub async fn ready(say: &dyn Fn(&str)) -> Result<Self, HarnessError> {
        let module = machine::workspace().join("tests/observability");
        let mut inputs = Fingerprint::default();
        for name in ["go.mod", "go.sum", "collector/main.go"] {
            let path = module.join(name);
            inputs.add(&file("read", &path, fs::read(&path))?);
        }
        let dir = cache::dir("observability", &inputs);
        let built = SOURCES.map(|(name, _)| dir.join(name));
        if !built.iter().all(|path| path.is_file()) {
            let waiting = "waiting for another process to build the trace viewer";
            let _lock = cache::lock(&dir, &|| say(waiting)).await?;
            go().await?;
            say("building the collector and the trace viewer with Go, once (about 10 minutes)");
            for ((name, package), path) in SOURCES.iter().zip(&built) {
                if !path.is_file() {
                    let part = dir.join(format!("{name}.part"));
                    build(&module, package, &part).await?;
                    file("move", path, fs::rename(&part, path))?;
                }
            }
        }
        let [collector, viewer] = built;
        Ok(Self { collector, viewer })
    }
}

async fn build(module: &Path, package: &str, to: &Path) -> Result<(), HarnessError> {
    let program = format!("go build {package}");
    let ran = Command::new("go")
        .args([
            "build",
            "-trimpath",
            "-mod=readonly",
            "-ldflags=-s -w",
            "-o",
        ])
        .args([to.as_os_str(), package.as_ref()])
        // Its image has nothing but the program.
        .env("CGO_ENABLED", "0")
        .current_dir(module)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    let output = ran.map_err(|source| HarnessError::Run {
        program: program.clone(),
        source,
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(HarnessError::Failed {
        program,
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
