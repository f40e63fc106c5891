//! The watch contract: store, serve, mirror, follow.
