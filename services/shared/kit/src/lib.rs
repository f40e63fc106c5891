//! What makes a process one of ours.
//!
//! A service is a manifest and a `build`: [`main`] reads the arguments and the configuration, sets
//! telemetry up, takes the service's lock, takes over or binds its socket, calls `build`, serves
//! what it returned together with health, info and drain, tells the service manager, and stops
//! cleanly. Tasks it starts: the server, the span exporter, and the watchdog when asked for.

pub mod address;
mod args;
pub mod cause;
pub mod channel;
pub mod config;
mod ctx;
mod drain;
mod error;
mod exit;
pub mod follow;
mod health;
mod info;
pub mod kept;
pub mod listener;
pub mod lock;
mod manifest;
pub mod memory;
pub mod notices;
mod notify;
mod peers;
pub mod serve;
mod service;
mod start;
pub mod started;
pub mod telemetry;

pub use args::DEFAULT_CONFIG;
pub use channel::{Channel, LARGEST_MESSAGE};
pub use config::Config;
pub use ctx::Ctx;
pub use error::{BoxError, report};
pub use exit::Exit;
pub use manifest::{Api, Call, Keep, Manifest};
pub use notices::Notices;
pub use peers::Peer;
pub use service::Service;
pub use start::main;
pub use tokio_util::sync::CancellationToken;
