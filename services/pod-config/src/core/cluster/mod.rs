//! Decisions about the objects of the API server: the order of requests, and which parts of the
//! responses are used.

pub mod certificate;
pub mod kinds;
pub mod node;
pub mod pod;
pub mod poll;
pub mod reference_index;
pub mod references;
pub mod reflector;
pub mod service;
pub mod state;
pub mod token;
pub mod volume_references;
