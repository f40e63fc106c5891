//! The runtime of every service process.
//!
//! A service is a [`ServiceDescriptor`] and a `build` function: [`main`] parses arguments and
//! configuration, sets up telemetry, acquires the service's lock, inherits or binds its socket,
//! calls `build`, serves the result together with health, info and drain, notifies the service
//! manager, and shuts down cleanly. It starts these tasks: the server, the span exporter, and with a
//! service manager the watchdog and the line of status.
//!
//! Shared mechanisms: [`clock`] (sleep until a wall-clock time), [`state_file`] and [`state_dir`]
//! (files that outlive the process), [`follow`] (streams of other services), [`subprocess`] and
//! [`BlockingCall`] (calls that may never return), [`config`].

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod access;
pub mod address;
mod args;
mod blocking_call;
pub mod boot_marker;
pub mod cause;
pub mod channel;
pub mod clock;
mod conditions;
pub mod config;
mod ctx;
mod descriptor;
mod drain;
mod error;
mod exit;
pub mod follow;
mod handshake;
mod health;
mod lifecycle;
mod linger;
pub mod listener;
pub mod lock;
pub mod memory;
pub mod metrics;
pub mod notices;
pub mod notify;
mod peer_checks;
mod peers;
mod ports;
pub mod process_limits;
pub mod profile;
mod request_end;
mod resend;
pub mod rpc_status;
pub mod sampling;
pub mod serve;
mod service;
mod stale_files;
mod start;
mod start_gate;
pub mod state_dir;
pub mod state_file;
mod status_change;
mod status_line;
pub mod subprocess;
pub mod telemetry;
pub mod trace_context;
mod watchdog;

pub use access::require_root_or_own_user;
pub use args::DEFAULT_CONFIG;
pub use blocking_call::{BlockingCall, BlockingCallError};
pub use channel::{Channel, MAX_MESSAGE_SIZE};
pub use conditions::HealthConditions;
pub use config::Config;
pub use ctx::Ctx;
pub use descriptor::{Api, Dependency, ServiceDescriptor, StateFileDecl, StateFormat};
pub use error::{BoxError, report, report_lines};
pub use exit::Exit;
pub use handshake::check_peer;
pub use notices::Notices;
pub use peers::Peer;
pub use polylet_profile::SampledAllocator;
pub use ports::PortError;
pub use request_end::EndWithMessage;
pub use service::Service;
pub use start::main;
pub use tokio_util::sync::CancellationToken;
pub use tokio_util::task::TaskTracker;
pub use tokio_util::task::task_tracker::TaskTrackerToken;
