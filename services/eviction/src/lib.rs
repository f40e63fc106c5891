//! Whether the node is well.
