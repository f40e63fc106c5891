//! The wire: every message and service between Polylet's processes.
//!
//! `proto/polylet/<area>/v1/*.proto` are ours; `proto/runtime/v1` declares the container runtime
//! interface (CRI v1), wire-compatible with upstream's. The Rust code under `src/gen` is generated
//! by `cargo generate` and committed; a tidy test regenerates and compares.
//!
//! Within v1 only additions are made: removed numbers and names are reserved, and an unset field
//! means what happened before the field existed. `proto/README.md` says how to change a message.

/// Levels of our packages: each addition to the wire raises that of its package, and services check
/// those of their peers.
pub mod levels {
    include!("gen/levels.rs");
}
/// Messages with values that this build does not know.
pub mod known;
mod secrets;
/// Nanosecond timestamps to and from the wire.
pub mod time;

macro_rules! package {
    ($(#[$doc:meta])* $name:ident, $file:literal) => {
        $(#[$doc])*
        pub mod $name {
            #[doc = "Version 1."]
            #[allow(missing_docs, clippy::all, unreachable_pub)]
            #[rustfmt::skip]
            pub mod v1 {
                include!(concat!("gen/", $file));
            }
        }
    };
}

/// Polylet's own packages.
pub mod polylet {
    package!(
        /// Positions, causes, pod references.
        common, "polylet.common.v1.rs");
    package!(
        /// What should run.
        podconfig, "polylet.podconfig.v1.rs");
    package!(
        /// What the runtime holds.
        pleg, "polylet.pleg.v1.rs");
    package!(
        /// Verdicts on containers.
        prober, "polylet.prober.v1.rs");
    package!(
        /// Volumes of pods.
        volume, "polylet.volume.v1.rs");
    package!(
        /// Devices of plugins, and who has them.
        device, "polylet.device.v1.rs");
    package!(
        /// Images and room for them.
        imagegc, "polylet.imagegc.v1.rs");
    package!(
        /// Pressure and eviction orders.
        eviction, "polylet.eviction.v1.rs");
    package!(
        /// Usage of node and pods.
        stats, "polylet.stats.v1.rs");
    package!(
        /// Progress of pods.
        sync, "polylet.sync.v1.rs");
    package!(
        /// Statuses of pods.
        status, "polylet.status.v1.rs");
    package!(
        /// What services have to say to people.
        notice, "polylet.notice.v1.rs");
    package!(
        /// Info and drain of every service.
        lifecycle, "polylet.lifecycle.v1.rs");
    package!(
        /// Services and traces.
        supervisor, "polylet.supervisor.v1.rs");
}

pub use polylet::*;

package!(
    /// The container runtime interface (CRI v1), declared in our own words.
    runtime, "runtime.v1.rs");
package!(
    /// Containerd's own API of tasks, declared in our own words.
    containerd, "containerd.services.tasks.v1.rs");
package!(
    /// The container storage interface (CSI v1), declared in our own words.
    csi, "csi.v1.rs");
/// The device plugin API, declared in our own words.
pub mod deviceplugin {
    #[doc = "Version 1, beta 1."]
    #[allow(missing_docs, clippy::all, unreachable_pub)]
    #[rustfmt::skip]
    pub mod v1beta1 {
        include!("gen/v1beta1.rs");
    }
}

package!(
    /// How plugins make themselves known, declared in our own words.
    pluginregistration, "pluginregistration.rs");
