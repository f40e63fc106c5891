//! A node out of real parts, for tests.
