//! Keeps the services and shows what they say; the command `polylet`.
//!
//! `polylet run` opens every service's listening socket, starts the services in rank order, hands
//! the sockets down and starts again what ends. One task (`run::stack`) owns all of that; its one
//! enum of inputs is fed by a task per child that waits for its end, one that watches its health
//! and one that reads its notify socket. Beside it the supervisor's own socket serves the list of
//! services and takes the services' spans into a bounded ring (`traces`), from where they are
//! forwarded when asked for. The other commands are clients of these sockets.

mod cli;
mod client;
pub mod core;
mod run;
mod show;
mod traces;

pub use cli::main;
