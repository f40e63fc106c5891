//! The status of pods, joined from all facts.
