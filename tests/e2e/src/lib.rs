//! End-to-end tests on real parts.
