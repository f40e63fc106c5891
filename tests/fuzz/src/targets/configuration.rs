//! The configuration: KubeletConfiguration, PolyletConfiguration and flags.

use std::path::Path;

use polylet_kit::config::{Config, from_text, parse_threshold};
use polylet_kit::report;

use crate::input::{halves, select, text};

/// A configuration file, the command line, or a single setting.
pub(super) fn configuration(data: &[u8]) {
    let (kind, data) = select(data, 3);
    match kind {
        0 => match from_text(Path::new("/etc/polylet/config.yaml"), text(data)) {
            Ok(config) => consume(&config),
            Err(error) => drop(report(&error)),
        },
        1 => {
            let args = text(data).split('\0').map(str::to_owned);
            polylet_supervisor::fuzzing::flags(args.collect());
        }
        _ => {
            let (signal, value) = halves(data);
            // Invalid thresholds are errors.
            let _ = parse_threshold(text(signal), text(value));
        }
    }
}

/// What services derive from a valid configuration.
fn consume(config: &Config) {
    let machine = polylet_machine::Machine::read();
    polylet_machine::allocatable(config, machine);
    polylet_machine::capacity(config, machine);
    config.kubelet.qos_reserved_memory();
    config.kubelet.parallel_image_pulls();
    polylet_sync_coordinator::config::Config::new(config, Default::default());
    polylet_eviction::fuzzing::configuration(config);
}
