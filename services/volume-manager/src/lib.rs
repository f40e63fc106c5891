//! The files of pods.
