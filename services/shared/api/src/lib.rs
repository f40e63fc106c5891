//! Access to the API server, for the three services that have it: pod-config reads,
//! status-reporter writes, node-api has requests authenticated and authorized.
//!
//! - [`ClientConfig`]: the kubeconfig of the node; a standalone node has none.
//! - [`ApiConnection`]: a client on an HTTP/2 connection of its own. It is rebuilt when the
//!   kubeconfig or a certificate changes, and a server that is silent for 10 s is given up.
//! - [`retry`]: the retry loop of all controllers.
//! - [`ApiErrorKind`]: the kind of a failed request.
//! - [`client_cert`]: the rotated client certificate, which replaces that of the kubeconfig.
//! - `client`: building a client.
//! - `exec_credential`: credential plugins (`exec` in a kubeconfig).
//! - `goaway_retry`: requests that a server has not processed before it closed the connection.
//! - `proxy`: the proxy in front of the API server.

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
pub mod client_cert;
mod client_config;
mod connection;
#[cfg(feature = "crash-points")]
mod crash_points;
mod credential_files;
mod error;
mod error_kind;
mod exec_credential;
#[doc(hidden)]
pub mod fuzzing;
mod goaway_retry;
pub mod kubeconfig;
mod metrics;
mod proxy;
pub mod retry;
mod trace_context;

pub use client_config::ClientConfig;
pub use connection::ApiConnection;
pub use error::ConnectError;
pub use error_kind::ApiErrorKind;
pub use exec_credential::PluginError;
pub use kube;
pub use proxy::ProxyError;
pub use retry::{RequestError, Retry, RetryTimer, random};
