//! All services' decisions in one seeded simulation.
//!
//! One process holds the real decisions of the services ([`node`]), their real stores and replicas
//! ([`link`]), and a simulation of everything outside: a runtime that guarantees what the CRI
//! guarantees and nothing else ([`runtime`]), a device plugin ([`device_plugin`]), the disk
//! ([`world::Disk`]), and pod sources ([`pods`]).
//! The simulation has a virtual clock, no threads and no sockets. All randomness comes from the seed
//! ([`rng`]), so that a failing seed fails again in the same step.
//!
//! A seed ([`run::seed`]) starts with chaos ([`chaos`]): messages are delayed or lost, calls end late or
//! without a response and continue after the death of their caller, services are killed between any
//! two steps and restart with their persisted state, containers and sandboxes exit, image pulls fail,
//! the disk is full, the runtime is unavailable, the node is short of memory or disk space and evicts
//! pods, images are collected, the device plugin stops, starts and finds its devices broken, manifests are
//! created, changed, corrupted and removed. Then the faults
//! end ([`quiesce`]), and the state has to converge. Finally every service is killed and restarted.
//!
//! [`invariants::Invariant`] lists what has to hold: [`invariants`] checks each step, and
//! [`final_checks`] the converged state. Deliberate bugs ([`mutations`]) show that the invariants find
//! bugs.
//!
//! `cargo test -p polylet-sim` runs many seeds; `POLYLET_SIM_SEEDS` sets their number.
//! `POLYLET_SIM_SEED=n cargo test -p polylet-sim invariants_hold -- --nocapture` runs one seed and
//! prints its log.

pub mod calls;
pub mod chaos;
pub mod device_plugin;
pub mod final_checks;
pub mod invariants;
pub mod link;
pub mod mutations;
pub mod node;
pub mod observe;
pub mod pods;
pub mod quiesce;
pub mod rng;
pub mod run;
pub mod runtime;
pub mod steps;
pub mod world;
