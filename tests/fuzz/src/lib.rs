//! Coverage-guided fuzz targets for everything that parses foreign data, and the seeds and found
//! cases that go with them.
//!
//! A target takes bytes and must neither panic, nor take long, nor allocate much, whatever they are.
//! `tests/regressions.rs` replays all stored inputs. `cargo fuzz-long` builds `polylet-fuzz` with
//! instrumentation: libFuzzer around one target, and what runs it for some or all targets.

use std::path::PathBuf;
use std::time::Duration;

/// Splitting of inputs into parts.
pub mod input;
/// Limits of time and memory.
pub mod limits;
/// `cargo fuzz-long`.
pub mod runner;
/// Inputs with one part repeated.
pub mod scale;
/// The scratch directory for parsers that read files.
pub mod scratch;
/// The targets, by subject.
mod targets;

pub use targets::TARGETS;

/// The environment variable that names the engine's target.
pub const TARGET_VARIABLE: &str = "POLYLET_FUZZ_TARGET";

/// A parser, or a service's decisions, fed with arbitrary bytes.
#[derive(Debug)]
pub struct Target {
    /// The name, also of its directories of inputs.
    pub name: &'static str,
    /// The longest input worth trying, in bytes.
    pub max_length: usize,
    run: fn(&[u8]),
}

impl Target {
    /// Runs one input within the limits.
    ///
    /// # Panics
    /// If the input breaks an assertion of the target or takes more processor time than `limit`.
    pub fn run(&self, data: &[u8], limit: Duration) {
        limits::with_limits(limit, || (self.run)(data));
    }

    /// The seeds, and inputs that reached new code.
    pub fn corpus(&self) -> PathBuf {
        directory().join("corpus").join(self.name)
    }

    /// Inputs that once failed.
    pub fn regressions(&self) -> PathBuf {
        directory().join("regressions").join(self.name)
    }
}

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// This crate's directory.
pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
