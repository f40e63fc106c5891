//! What is to be followed at pod-config from now on, and what no longer.

use crate::core::certificates::CertificateKey;
use crate::core::reference_key::ReferenceKey;
use crate::core::tokens::PodTokenKey;

/// The changes since they were last taken, of each kind in their order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SubscriptionChanges {
    /// Objects. One that is immutable is not followed once it has been received.
    pub objects: Vec<SubscriptionChange<ReferenceKey>>,
    /// Tokens, which are requested and refreshed.
    pub tokens: Vec<SubscriptionChange<PodTokenKey>>,
    /// Certificates of pods.
    pub certificates: Vec<SubscriptionChange<CertificateKey>>,
}

/// A subscription begins or ends. What was received by one that has ended is forgotten: the same key may
/// end and begin again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriptionChange<K> {
    /// Nothing of it has been received.
    Subscribe(K),
    /// No pod needs it, or it no longer changes.
    Unsubscribe(K),
}
