//! Metrics of the machine as cAdvisor has them.

use polylet_metrics::FamilyKind::Gauge;
use polylet_metrics::{Exposition, Labels};

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineInfo {
    pub(crate) machine_id: String,
    pub(crate) system_uuid: String,
    pub(crate) boot_id: String,
    pub(crate) kernel_version: String,
    pub(crate) os_image: String,
    pub(crate) cores: u64,
    pub(crate) physical_cores: u64,
    pub(crate) sockets: u64,
    /// In bytes.
    pub(crate) memory: u64,
    /// In bytes.
    pub(crate) swap: u64,
}

pub(super) fn write_machine(exposition: &mut Exposition, machine: &MachineInfo) {
    let labels = Labels::default()
        .with("boot_id", &machine.boot_id)
        .with("machine_id", &machine.machine_id)
        .with("system_uuid", &machine.system_uuid);
    for (name, help, value) in [
        // Of mainframes.
        ("machine_cpu_books", "Number of CPU books.", 0),
        (
            "machine_cpu_cores",
            "Number of logical CPU cores.",
            machine.cores,
        ),
        ("machine_cpu_drawers", "Number of CPU drawers.", 0),
        (
            "machine_cpu_physical_cores",
            "Number of physical CPU cores.",
            machine.physical_cores,
        ),
        (
            "machine_cpu_sockets",
            "Number of CPU sockets.",
            machine.sockets,
        ),
        (
            "machine_memory_bytes",
            "Amount of memory installed on the machine.",
            machine.memory,
        ),
        // cAdvisor is built without support for it in the kubelet, too.
        ("machine_nvm_avg_power_budget_watts", "NVM power budget.", 0),
        (
            "machine_swap_bytes",
            "Amount of swap memory available on the machine.",
            machine.swap,
        ),
    ] {
        exposition
            .family(name, help, Gauge)
            .sample(&labels, value as f64, None);
    }
    let help = "NVM capacity value labeled by NVM mode (memory mode or app direct mode).";
    let mut series = exposition.family("machine_nvm_capacity", help, Gauge);
    for mode in ["app_direct_mode", "memory_mode"] {
        series.labelled(&labels, ("mode", mode), 0.0, None);
    }
    let help = "1 if there was an error while getting machine metrics, 0 otherwise.";
    exposition
        .family("machine_scrape_error", help, Gauge)
        .sample(&Labels::default(), 0.0, None);
}
