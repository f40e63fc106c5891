//! How the node reaches the API server: for the three services that may (pod-config reads,
//! status-reporter writes, node-api asks who may do what).
//!
//! - [`Access`]: where the configuration says the API server is; none of a node that stands alone.
//! - [`Connection`]: a client that follows its kubeconfig and certificate files, on one HTTP/2
//!   connection of its own, on which a peer that is silent for 10 s is noticed.
//! - `client`: how that client is made.
//! - `proxy`: the proxy on the way, as the kubeconfig or the environment names it.
//! - [`kept`]: the node's own certificate, which stands for the kubeconfig's where it is rotated.
//! - `farewell`: servers that send their clients to another connection.
//! - `plugin`: programs that give the node its credentials (`exec` of a kubeconfig).
//! - [`Refusal`]: what kind of failure an error is, so that callers decide in one way.
//! - [`Backoff`]: how long to wait after failures.

mod access;
mod backoff;
mod client;
mod connection;
mod error;
mod farewell;
pub mod kept;
mod plugin;
mod proxy;
mod refusal;
mod renewal;

pub use access::Access;
pub use backoff::{Backoff, random};
pub use connection::Connection;
pub use error::ConnectError;
pub use kube;
pub use plugin::PluginError;
pub use proxy::ProxyError;
pub use refusal::Refusal;
