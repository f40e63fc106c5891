//! The configuration file: `KubeletConfiguration` as upstream reads it, and a second document,
//! `PolyletConfiguration`, for what upstream has no word for.

mod allowed;
mod gates;
/// Durations as Go writes them.
pub mod go_duration;
mod kubelet;
mod load;
mod parts;
mod polylet;
mod problems;
#[cfg(test)]
mod tests;
mod threshold;
mod unheeded;

use std::path::PathBuf;

pub use go_duration::parse as parse_duration;
pub use kubelet::KubeletConfiguration;
pub use load::{ConfigError, ConfigProblem, check, from_text, load};
pub use parts::*;
pub use polylet::{PolyletConfiguration, TraceRing};
pub use threshold::{EvictionThreshold, ThresholdValue, parse_threshold};

/// Everything a service may want to know of its configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// As upstream's, defaults filled in.
    pub kubelet: KubeletConfiguration,
    /// Polylet's own, defaults filled in.
    pub polylet: PolyletConfiguration,
    /// Unknown fields and the like, with their paths.
    pub warnings: Vec<String>,
    /// The file it came from.
    pub path: PathBuf,
}
