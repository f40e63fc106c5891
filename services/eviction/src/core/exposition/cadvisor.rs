//! `/metrics/cadvisor`: the families that the kubelet enables in cAdvisor, with its labels.

use polylet_metrics::FamilyKind::{Counter, Gauge};
use polylet_metrics::{Exposition, Labels};

use super::devices::{write_devices, write_filesystems, write_networks};
use super::families::{CgroupFamily, FAMILIES, PRESSURE};
use super::machine::{MachineInfo, write_machine};
use super::measured::CadvisorSample;

/// Renders the sample.
pub(crate) fn render(sample: &CadvisorSample) -> String {
    let mut exposition = Exposition::default();
    write_version(&mut exposition, &sample.machine);
    for family in &FAMILIES {
        write_family(&mut exposition, family, sample);
    }
    for family in PRESSURE.iter().filter(|_| sample.has_pressure) {
        write_family(&mut exposition, family, sample);
    }
    write_last_seen(&mut exposition, sample);
    write_cpu(&mut exposition, sample);
    write_memory_failures(&mut exposition, sample);
    write_tasks(&mut exposition, sample);
    write_devices(&mut exposition, sample);
    write_filesystems(&mut exposition, sample);
    write_networks(&mut exposition, sample);
    let none = Labels::default();
    exposition
        .family(
            "container_scrape_error",
            "1 if there was an error while getting container metrics, 0 otherwise",
            Gauge,
        )
        .sample(&none, 0.0, None);
    write_machine(&mut exposition, &sample.machine);
    exposition.finish()
}

fn write_version(exposition: &mut Exposition, machine: &MachineInfo) {
    let help = "A metric with a constant '1' value labeled by kernel version, OS version, docker \
                version, cadvisor version & cadvisor revision.";
    let labels = Labels::default()
        .with("cadvisorRevision", "")
        .with("cadvisorVersion", "")
        .with("dockerVersion", "")
        .with("kernelVersion", &machine.kernel_version)
        .with("osVersion", &machine.os_image);
    exposition
        .family("cadvisor_version_info", help, Gauge)
        .sample(&labels, 1.0, None);
}

fn write_family(exposition: &mut Exposition, family: &CgroupFamily, sample: &CadvisorSample) {
    let at = family.is_timed.then(|| sample.at.as_millisecond());
    let mut series = exposition.family(family.name, family.help, family.kind);
    for cgroup in &sample.cgroups {
        if let Some(value) = (family.value)(&cgroup.stats) {
            series.sample(&cgroup.labels, value, at);
        }
    }
}

fn write_last_seen(exposition: &mut Exposition, sample: &CadvisorSample) {
    let mut series = exposition.family(
        "container_last_seen",
        "Last time a container was seen by the exporter",
        Gauge,
    );
    let (seconds, at) = (sample.at.as_second() as f64, sample.at.as_millisecond());
    for cgroup in &sample.cgroups {
        series.sample(&cgroup.labels, seconds, Some(at));
    }
}

fn write_cpu(exposition: &mut Exposition, sample: &CadvisorSample) {
    let mut series = exposition.family(
        "container_cpu_usage_seconds_total",
        "Cumulative cpu time consumed in seconds.",
        Counter,
    );
    let at = Some(sample.at.as_millisecond());
    for cgroup in &sample.cgroups {
        if let Some(cpu) = cgroup.stats.cpu.filter(|cpu| cpu.total > 0) {
            let seconds = cpu.total as f64 / 1e9;
            series.labelled(&cgroup.labels, ("cpu", "total"), seconds, at);
        }
    }
}

fn write_memory_failures(exposition: &mut Exposition, sample: &CadvisorSample) {
    let mut series = exposition.family(
        "container_memory_failures_total",
        "Cumulative count of memory allocation failures.",
        Counter,
    );
    let at = Some(sample.at.as_millisecond());
    for cgroup in &sample.cgroups {
        let Some(memory) = cgroup.stats.memory else {
            continue;
        };
        for (kind, scope, count) in [
            ("pgfault", "container", memory.own_page_faults),
            ("pgmajfault", "container", memory.own_major_page_faults),
            ("pgfault", "hierarchy", memory.page_faults),
            ("pgmajfault", "hierarchy", memory.major_page_faults),
        ] {
            let labels = cgroup.labels.clone().with("failure_type", kind);
            series.labelled(&labels, ("scope", scope), count as f64, at);
        }
    }
}

/// States of tasks, which cAdvisor does not measure in the kubelet, and limits of the first process.
fn write_tasks(exposition: &mut Exposition, sample: &CadvisorSample) {
    const STATES: [&str; 5] = [
        "sleeping",
        "running",
        "stopped",
        "uninterruptible",
        "iowaiting",
    ];
    let at = Some(sample.at.as_millisecond());
    let help = "Number of tasks in given state";
    let mut series = exposition.family("container_tasks_state", help, Gauge);
    for cgroup in &sample.cgroups {
        for state in STATES {
            series.labelled(&cgroup.labels, ("state", state), 0.0, at);
        }
    }
    let help = "Soft ulimit values for the container root process. Unlimited if -1, except priority \
                and nice";
    let mut series = exposition.family("container_ulimits_soft", help, Gauge);
    for cgroup in &sample.cgroups {
        if let Some(limit) = cgroup.stats.tasks.max_open_files {
            series.labelled(
                &cgroup.labels,
                ("ulimit", "max_open_files"),
                limit as f64,
                at,
            );
        }
    }
}
