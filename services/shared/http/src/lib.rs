//! HTTP GET as probes, lifecycle hooks and URL sources make it: one connection per request, without
//! a pool. The caller bounds the time. Requests come from the manifests of pods: headers, bodies and
//! lookups of names are bounded.
//!
//! - [`Client::for_probes`]: follows redirects to the same host only and does not verify
//!   certificates, as the kubelet's prober and lifecycle handlers.
//! - [`Client::for_sources`]: follows all redirects, verifies certificates against the machine's
//!   authorities, and sends the caller's headers to the configured host alone.
//!
//! # Why no `url` crate
//!
//! Upstream parses and resolves URLs with Go's `net/url`, that is RFC 3986; the `url` crate
//! implements the WHATWG standard of browsers. They differ where a server chooses the text:
//! `http:x`, `\\h\x`, `/%2e%2e/x` and `http://2130706433/` (an address to browsers, a name to Go)
//! lead elsewhere, so a redirect would be followed that upstream does not follow. It would also add
//! 20 crates, and 210 KiB of code and Unicode tables for names that nodes do not use.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod client;
mod connect;
mod error;
mod headers;
mod resolver;
mod target;
mod tls;

pub use client::{Client, Get, GetProgress, GetResponse};
pub use connect::{DialError, dial_error, host_port};
pub use error::{GetError, HttpError};
pub use resolver::LookupError;
pub use target::{GetTarget, InvalidUrl};
pub use tls::TlsError;
