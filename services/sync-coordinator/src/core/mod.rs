//! What to do next for one pod: pure, and all of it here.
//!
//! [`plan::plan`] looks at a [`view::View`] (everything known of one pod, steps
//! under way included) and says which steps to start now, when to look again, and
//! what to tell. Each room decides one matter; [`learn`] takes results back in.

pub mod admission;
pub mod annotations;
pub mod cleanup;
pub mod containers;
pub mod credentials;
pub mod hooks;
pub mod images;
pub mod init;
pub mod kill;
pub mod learn;
pub mod leftovers;
pub mod logs;
pub mod mount;
pub mod notices;
pub mod observed;
pub mod plan;
pub mod pull_rate;
pub mod reset;
pub mod resize;
pub mod restart;
pub mod room;
pub mod sandbox;
pub mod step;
pub mod stop;
pub mod terminal;
pub mod view;
pub mod volumes;
pub mod wanted;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
