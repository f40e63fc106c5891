//! All services' decisions in one seeded world.
//!
//! One process holds the real decisions of the services ([`node`]), their real stores and mirrors
//! ([`link`]), and everything outside them: a runtime that keeps CRI's promises and no others
//! ([`runtime`]), the disk ([`world::Disk`]), and sources that want pods and take them back
//! ([`pods`]). There is no clock but the world's, no thread and no socket; all chance comes out of
//! the seed ([`rng`]), so a seed that fails fails again, step by step.
//!
//! A seed ([`run::seed`]) first goes through chaos ([`chaos`]): messages come late or not at all, calls end late
//! or unheard and go on after the death of who made them, services are killed between any two steps
//! and come back with what they keep, containers and sandboxes end, pulls fail, the disk is full,
//! the runtime is away, the node is short of memory or room and pods are ordered off it, images are
//! collected, manifests come, change, break and go. Then all is calm ([`calm`]), and the world has to come
//! to rest. In the end every service is killed and started once more.
//!
//! [`laws::Law`] lists what must hold; [`laws`] looks at each step, [`rest`] at the calm. That the
//! laws find bugs is shown with bugs put in by hand ([`sabotage`]).
//!
//! `cargo test -p polylet-sim` runs many seeds; `POLYLET_SIM_SEEDS` says how many.
//! `POLYLET_SIM_SEED=n cargo test -p polylet-sim no_law -- --nocapture` runs one and tells its story.

pub mod calls;
pub mod calm;
pub mod chaos;
pub mod laws;
pub mod link;
pub mod looks;
pub mod node;
pub mod pods;
pub mod rest;
pub mod rng;
pub mod run;
pub mod runtime;
pub mod sabotage;
pub mod steps;
pub mod world;
