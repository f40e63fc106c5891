//! The configuration file: upstream's `KubeletConfiguration`, and a second document,
//! `PolyletConfiguration`, for settings that upstream does not have.

mod gates;
pub mod go_duration;
mod kubelet;
mod load;
mod polylet;
mod problems;
mod sections;
#[cfg(test)]
mod tests;
mod threshold;
mod tls;
mod unsupported;
mod validate;

use std::path::PathBuf;

pub use go_duration::parse as parse_duration;
pub use kubelet::KubeletConfiguration;
pub use load::{ConfigError, check, from_text, load};
pub use polylet::{
    KeepSecrets, PolyletConfiguration, PolyletTracing, TailSampling, TraceParent, TraceRing,
};
pub use problems::ConfigProblem;
pub use sections::*;
pub use threshold::{EvictionThreshold, EvictionThresholdValue, parse_threshold};
pub use tls::{AVAILABLE_CURVES, AVAILABLE_TLS12_SUITES};
pub use unsupported::{INEFFECTIVE_FIELDS, UNSUPPORTED_FIELDS};

/// The configuration of the node.
#[derive(Debug, Clone)]
pub struct Config {
    /// Upstream's document, with defaults.
    pub kubelet: KubeletConfiguration,
    /// Polylet's document, with defaults.
    pub polylet: PolyletConfiguration,
    /// Unknown fields, with their paths, and settings without effect.
    pub warnings: Vec<String>,
    /// The configuration file.
    pub path: PathBuf,
}
