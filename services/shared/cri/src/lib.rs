//! The container runtime as a typed client.
