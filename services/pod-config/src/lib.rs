//! What should run on this node.
