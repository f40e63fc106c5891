//! klog's verbosity (`-v`), which the kubelet's flags and the node API use, and the filter that it means here.

use std::sync::OnceLock;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::{Registry, reload};

/// The filter of this process's log, once it logs.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Libraries that say too much below `info`.
const QUIET: &str = "h2=info,hyper=info,hyper_util=info,rustls=info,tower=info,tonic=info";

/// Why the verbosity was not set.
#[derive(Debug, thiserror::Error)]
pub enum VerbosityError {
    /// The process has no log of its own, as in tests.
    #[error("the log of this process has no filter")]
    NoLog,
    /// The log is gone.
    #[error("changing the filter of the log")]
    Filter(#[source] reload::Error),
}

/// The `logLevel` for a verbosity: `info` up to 3, `debug` up to 7, `trace` beyond. Libraries stay at `info`.
pub fn verbosity_filter(verbosity: u32) -> String {
    match verbosity {
        0..=3 => "info".to_owned(),
        4..=7 => format!("debug,{QUIET}"),
        _ => format!("trace,{QUIET}"),
    }
}

/// Sets what this process logs until it ends, instead of the configured `logLevel`.
///
/// # Errors
/// When the process does not log.
pub fn set_verbosity(verbosity: u32) -> Result<(), VerbosityError> {
    let handle = FILTER.get().ok_or(VerbosityError::NoLog)?;
    let (filter, _) = super::log_filter(&verbosity_filter(verbosity));
    handle.reload(filter).map_err(VerbosityError::Filter)?;
    tracing::info!(verbosity, "log verbosity set");
    Ok(())
}

/// Keeps the filter of the process's log.
pub(super) fn set_handle(handle: reload::Handle<Targets, Registry>) {
    // Set once: only the first initialization of the log succeeds.
    let _ = FILTER.set(handle);
}

#[cfg(test)]
mod tests {
    use super::super::log_filter;
    use super::*;
    use tracing::Level;

    #[test]
    fn verbosities_are_levels() {
        for (verbosity, ours, theirs) in [
            (0, Level::INFO, Level::WARN),
            (3, Level::INFO, Level::WARN),
            (4, Level::DEBUG, Level::INFO),
            (7, Level::DEBUG, Level::INFO),
            (8, Level::TRACE, Level::INFO),
            (u32::MAX, Level::TRACE, Level::INFO),
        ] {
            let (filter, is_wrong) = log_filter(&verbosity_filter(verbosity));
            assert!(!is_wrong, "{verbosity}");
            for level in [Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
                let enabled = |target| filter.would_enable(target, &level);
                assert_eq!(enabled("polylet_pleg::run"), level <= ours, "{verbosity}");
                assert_eq!(enabled("h2::codec"), level <= theirs, "{verbosity}");
            }
        }
    }
}
