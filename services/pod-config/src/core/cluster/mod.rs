//! What the cluster holds for this node: in which order it is asked, what of its answers is used.

pub mod certificate;
pub mod kept;
pub mod kinds;
pub mod node;
pub mod pod;
pub mod poll;
pub mod reflector;
pub mod service;
pub mod token;
