//! Network interfaces, from `/proc/<process>/net/dev`.

use procfs::process::Process;

use crate::core::stats::{InterfaceStats, Traffic};

/// Interfaces that are no traffic of their own, by prefix, as cAdvisor.
const IGNORED: [&str; 4] = ["lo", "veth", "docker", "nerdctl"];

/// The interfaces in the network namespace of a process, by name; `None` when it has ended.
pub(crate) fn interfaces(process: u32) -> Option<Vec<InterfaceStats>> {
    let process = Process::new(i32::try_from(process).ok()?).ok()?;
    let devices = process.dev_status().ok()?;
    let mut interfaces: Vec<_> = devices
        .into_values()
        .filter(|device| !IGNORED.iter().any(|prefix| device.name.starts_with(prefix)))
        .map(|device| InterfaceStats {
            received: Traffic {
                bytes: device.recv_bytes,
                packets: device.recv_packets,
                errors: device.recv_errs,
                dropped: device.recv_drop,
            },
            sent: Traffic {
                bytes: device.sent_bytes,
                packets: device.sent_packets,
                errors: device.sent_errs,
                dropped: device.sent_drop,
            },
            name: device.name,
        })
        .collect();
    interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    Some(interfaces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_interfaces_are_listed_without_loopback() {
        let interfaces = interfaces(std::process::id()).unwrap();
        assert!(interfaces.iter().all(|interface| interface.name != "lo"));
        assert!(super::interfaces(u32::MAX).is_none());
    }
}
