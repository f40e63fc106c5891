//! Rules of CSI volumes: the prerequisites of a mount, and what is sent to the driver.

mod build;
mod prerequisites;

pub use build::{inline, persistent};
pub use prerequisites::{attachable, driver, driver_key};
