//! What makes a process one of ours.
