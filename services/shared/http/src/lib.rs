//! A GET as probes and lifecycle hooks make it: on a connection of its own, following redirects to
//! the same host, over TLS without checking who answers. The caller bounds the time.

mod error;
mod get;
mod net;
mod target;
mod tls;

pub use error::{GetError, HttpError};
pub use get::{Answer, Get, Heard, fetch, get};
pub use net::{authority, connect, dial, words};
pub use tls::Tls;
