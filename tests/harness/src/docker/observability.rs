use std::path::PathBuf;

use crate::error::HarnessError;
use crate::go_module::{GoBuild, GoModule, GoProgram};
use crate::machine;

const ANNOUNCEMENT: &str =
    "building the collector and the trace viewer with Go, once (about 10 minutes)";

const COLLECTOR: GoProgram = GoProgram {
    name: "collector",
    package: "./collector",
    // Its image has nothing but the program.
    build: GoBuild::Static,
};

const VIEWER: GoProgram = GoProgram {
    name: "jaeger",
    package: "github.com/jaegertracing/jaeger/cmd/jaeger",
    build: GoBuild::Static,
};

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
        let mut module = module()?;
        Ok(Self {
            collector: module.program(&COLLECTOR, say).await?,
            viewer: module.program(&VIEWER, say).await?,
        })
    }

    /// Builds the collector alone: about a minute the first time.
    ///
    /// # Errors
    /// Fails if Go is missing or too old, or it cannot be built.
    pub async fn collector(say: &dyn Fn(&str)) -> Result<PathBuf, HarnessError> {
        module()?.program(&COLLECTOR, say).await
    }
}

fn module() -> Result<GoModule, HarnessError> {
    let source = machine::workspace().join("tests/observability");
    let inputs = ["collector/main.go"];
    GoModule::open("observability", &source, &inputs, ANNOUNCEMENT)
}
