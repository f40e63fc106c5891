//! A node out of real parts: packages from Debian, a containerd of its own, the services as they
//! are built. The demo, the end-to-end tests and the benchmark all stand on it.
//!
//! Everything of one run lives in one scratch directory and carries its id: the bridge, the
//! cgroups, the network's name. [`cleanup`] needs nothing but that directory, so it can also
//! remove what a killed run left behind ([`scratch::remove_leftovers`]).

/// Building the services.
pub mod build;
/// Cgroups of one run: made, emptied, removed.
pub mod cgroup;
/// Removing everything that a run made.
pub mod cleanup;
/// A real Kubernetes control plane.
pub mod cluster;
/// A private containerd.
pub mod containerd;
/// Calls to the container runtime that a test needs itself.
pub mod cri;
/// A CSI driver to be stopped and started.
pub mod csi;
/// What can go wrong, one variant per operation.
pub mod error;
/// Cleaning up on signals.
pub mod guard;
/// HTTP by hand, to ask a pod.
pub mod http;
/// Images made from busybox, without a registry.
pub mod image;
/// What this machine is.
pub mod machine;
/// The bridge network of one run.
pub mod network;
/// The node: directories, configuration, `polylet run`, and how to ask it.
pub mod node;
/// What is missing on this machine, and installing it.
pub mod packages;
/// Certificates for asking the node API.
pub mod pki;
/// Processes of one run.
pub mod procs;
/// An image registry, with or without a password.
pub mod registry;
/// The one directory of a run.
pub mod scratch;
/// Archives.
pub mod tar;
/// Typed views on what the node says.
pub mod view;
/// Waiting for a condition with one patience for all.
pub mod wait;

pub use cluster::{Cluster, ClusterOptions};
pub use containerd::{Containerd, Flavour};
pub use error::HarnessError;
pub use node::{Node, NodeOptions};
pub use registry::Registry;
pub use view::{ContainerView, PodView, ServiceView};
