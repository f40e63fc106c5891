//! What resolving a volume may ask for.

use super::blocked::Blocked;
use super::certificates::{CertificateKey, IssuedCertificate};
use super::csi_volume::RegisteredDriver;
use super::node_info::NodeInfo;
use super::reference_key::ReferenceKey;
use super::references::ObjectState;
use super::tokens::{IssuedToken, PodTokenKey};

/// Access to all that volumes depend on. What is looked up is followed from then on.
pub trait Lookup {
    /// A referenced object.
    fn object(&self, key: &ReferenceKey) -> &ObjectState;

    /// A service account token.
    fn token(&self, key: &PodTokenKey) -> Result<IssuedToken, Blocked>;

    /// A pod certificate and its key.
    fn certificate(&self, key: &CertificateKey) -> Result<IssuedCertificate, Blocked>;

    /// A driver that is registered on this node.
    fn registered(&self, driver: &str) -> Option<&RegisteredDriver>;

    /// The name of this node.
    fn node_name(&self) -> &str;

    /// Whether another pod of this node has a persistent volume, or an operation on it is running.
    fn is_used_by_other_pod(&self, uid: &str, persistent_volume: &str) -> bool;

    /// The Node object, once it has been received.
    fn node_info(&self) -> Option<&NodeInfo>;
}
