//! Makes what should run, run.
