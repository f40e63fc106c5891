//! Device-manager: devices that plugins offer, and their allocation to containers.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

use polylet_kit::{Api, BoxError, Ctx, Service, ServiceDescriptor};
use polylet_wire::levels;

/// The service and its dependencies.
pub static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "device-manager",
    version: env!("CARGO_PKG_VERSION"),
    about: "allocates the devices of device plugins to containers",
    serves: &[Api {
        package: "polylet.device.v1",
        level: levels::DEVICE,
    }],
    calls: &[],
    state_files: &[],
    subprocesses: &[],
};

/// Builds the service.
///
/// # Errors
/// None.
pub async fn build(_ctx: Ctx) -> Result<Service, BoxError> {
    Ok(Service::new())
}
