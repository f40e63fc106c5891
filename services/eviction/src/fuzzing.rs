//! Private parsers of foreign data, for the fuzz targets in `tests/fuzz`.

use std::path::Path;

use polylet_kit::config;
use polylet_kit::state_file::StateFile;

use crate::core::oom::{OomLogParser, parse_record};
use crate::core::threshold::{self, ThresholdSettings};
use crate::evictions::Evictions;
use crate::run::ConditionsFile;
use crate::sample::cgroup::CgroupMounts;
use crate::sample::cgroup_stats::Detail;

/// Parses records of the kernel log.
pub fn kernel_log<'a>(records: impl Iterator<Item = &'a [u8]>) {
    let mut parser = OomLogParser::default();
    for record in records.filter_map(parse_record) {
        if let Some(victim) = parser.parse(record.text) {
            victim.event_message();
        }
    }
}

/// Reads the usage of the cgroup `pod` of both versions below this directory.
pub fn cgroup_files(dir: &Path) {
    for mounts in [
        CgroupMounts::V1(dir.to_owned()),
        CgroupMounts::V2(dir.to_owned()),
    ] {
        mounts.usage("/pod");
        mounts.stats("/pod", Detail::Full);
    }
}

/// Parses the thresholds of a valid configuration.
pub fn configuration(config: &config::Config) {
    let kubelet = &config.kubelet;
    threshold::parse(ThresholdSettings {
        hard: &kubelet.eviction_hard,
        soft: &kubelet.eviction_soft,
        soft_grace: &Default::default(),
        minimum_reclaim: &kubelet.eviction_minimum_reclaim,
        pods_are_limited: true,
    });
}

/// Loads the state files of the service in this directory.
pub fn state_files(dir: &Path) -> Option<Evictions> {
    let conditions: ConditionsFile = StateFile::new(dir.join("pressure.json"), 1);
    let _ = conditions.restore("fuzzing");
    let position: StateFile<u64> = StateFile::new(dir.join("oom.json"), 1);
    let _ = position.restore("fuzzing");
    Evictions::load(dir.join("evictions.json")).ok()
}
