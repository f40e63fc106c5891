//! Whether containers are well.
