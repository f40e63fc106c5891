//! What the runtime holds.
