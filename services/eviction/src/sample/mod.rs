//! Reading the node: `/proc`, cgroups and file systems. Everything here may fail and then is missing
//! from the sample; nothing here decides.

pub(crate) mod cgroup;
pub(crate) mod disk;
pub(crate) mod node;
pub(crate) mod tree;
