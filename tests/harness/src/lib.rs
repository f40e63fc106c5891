//! A test node of real programs: Debian packages, a private containerd, the built services. Used by
//! the demo, the end-to-end tests and the benchmark.
//!
//! All files of a run are in one scratch directory; its bridge, cgroups and network are named after
//! its id. [`cleanup`] depends only on that directory, so it can also remove the remains of a
//! killed run ([`scratch::remove_leftovers`]).

/// TLS clients of nodes that sign their certificates themselves.
pub mod any_server;
/// Pages in a headless browser.
pub mod browser;
/// Build of the services.
pub mod build;
/// Cache directories of what is built once.
pub mod cache;
/// Creation and removal of a run's cgroups.
pub mod cgroup;
/// Removal of all resources of a run.
pub mod cleanup;
/// A real Kubernetes control plane.
pub mod cluster;
/// A private containerd.
pub mod containerd;
/// CRI client for tests.
pub mod cri;
/// A CSI test driver.
pub mod csi;
/// A device plugin for tests.
pub mod device_plugin;
/// A private Docker engine.
pub mod docker;
/// Errors, one variant per operation.
pub mod error;
/// Programs of pinned Go modules, built once.
pub mod go_module;
/// Cleanup on drop and on signals.
pub mod guard;
/// Minimal HTTP requests to pods.
pub mod http;
/// A mounted file system that never answers.
pub mod hung_fuse;
/// Images, built without a registry.
pub mod image;
/// Properties of this machine.
pub mod machine;
/// The bridge network of one run.
pub mod network;
/// The node: directories, configuration, `polylet run`, and requests to its services.
pub mod node;
/// Lookup and installation of packages.
pub mod packages;
/// Certificates of the node API.
pub mod pki;
/// Programs of an earlier version.
pub mod previous;
/// Processes of a run.
pub mod procs;
/// An image registry, optionally with a password.
pub mod registry;
/// The scratch directory of a run.
pub mod scratch;
/// A tar archive writer.
pub mod tar;
/// Typed views of the node's responses.
pub mod view;
/// Polling for conditions, with one common timeout.
pub mod wait;

pub use cluster::{Cluster, ClusterOptions};
pub use containerd::{Containerd, Flavour};
pub use docker::{DockerEngine, ObservabilityPrograms};
pub use error::HarnessError;
pub use hung_fuse::HungFuse;
pub use node::{Node, NodeOptions};
pub use registry::Registry;
pub use view::{ContainerView, PodView, SupervisedService};
