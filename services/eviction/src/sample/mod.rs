//! Samples `/proc`, cgroups, file systems and directories. What cannot be read is missing from the
//! sample. `disk_usage` runs in child processes.

pub(crate) mod cgroup;
pub(crate) mod cgroup_stats;
pub(crate) mod disk_usage;
pub(crate) mod filesystem;
pub(crate) mod machine;
mod mount_types;
pub(crate) mod mounted;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod processes;
