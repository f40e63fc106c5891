//! A GET as probes and lifecycle hooks make it: on a connection of its own, following redirects to
//! the same host, over TLS without checking who answers. The caller bounds the time.

mod get;
mod net;
mod target;
mod tls;

pub use get::{Get, GetError, HttpError, get};
pub use net::{authority, connect};
pub use tls::Tls;
