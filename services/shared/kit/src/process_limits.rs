//! `oomScoreAdj` and `maxOpenFiles` of this process. As in the kubelet, a process that may not set them
//! runs without.

use std::fs;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::KubeletConfiguration;

/// Sets both. Programs that this process starts inherit them.
pub fn apply(config: &KubeletConfiguration) {
    let score = config.oom_score_adj;
    if let Err(error) = fs::write("/proc/self/oom_score_adj", score.to_string()) {
        tracing::warn!(%error, score, "failed to set oomScoreAdj; keeping the inherited one");
    }
    let files = u64::try_from(config.max_open_files).unwrap_or(u64::MAX);
    if let Err(error) = set_max_open_files(files) {
        tracing::warn!(%error, files, "failed to set maxOpenFiles; keeping the inherited limit");
    }
}

fn set_max_open_files(files: u64) -> io::Result<()> {
    let limit = |current| Rlimit {
        current: Some(current),
        maximum: Some(files),
    };
    let Err(error) = setrlimit(Resource::Nofile, limit(files)) else {
        return Ok(());
    };
    // Only the superuser raises the hard limit, and not beyond the kernel's: up to it, then.
    let most = getrlimit(Resource::Nofile).maximum;
    match most {
        Some(most) if most < files => Ok(setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(most),
                maximum: Some(most),
            },
        )?),
        _ => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_applied_to_the_process() {
        // Both may be changed without privileges in this direction; they are those of the test's process.
        let before = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        let before: i32 = before.trim().parse().unwrap();
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(4096);
        let config = KubeletConfiguration {
            oom_score_adj: (before + 1).min(1000),
            max_open_files: i64::try_from(hard).unwrap_or(i64::MAX),
            ..KubeletConfiguration::default()
        };
        apply(&config);
        let after = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        assert_eq!(after.trim(), config.oom_score_adj.to_string());
        assert_eq!(getrlimit(Resource::Nofile).current, Some(hard));
    }
}
