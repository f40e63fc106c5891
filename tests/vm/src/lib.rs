//! A virtual machine for tests of the node: Debian 13, systemd as process 1, cgroup v2, Debian's
//! containerd, a kernel of its own and a disk that loses its cache with the power.
//!
//! `tests/vm/image` describes its root file system, which is built once. A [`VirtualMachine`] boots a
//! copy of it with QEMU, beside a read-only disk with the programs under test, and runs commands
//! through an agent on a serial port ([`Guest`]). It reaches servers on this machine's loopback
//! address as [`HOST`].
//!
//! `cargo verify -- --only vm` runs the tests. Environment variables: `POLYLET_VM_ACCEL=kvm` uses
//! hardware virtualization (emulation is the default), `POLYLET_VM_ROUNDS` is the number of power
//! cuts, and `POLYLET_VM_SEED` repeats a run's choices.

/// The protocol of the machine's agent.
pub mod agent;
/// The disk.
pub mod disk;
/// Errors of the virtual machine.
pub mod error;
/// Commands in the machine.
pub mod guest;
/// The image that machines boot from.
pub mod image;
/// A node in the machine.
pub mod node;
/// The disk with the programs under test.
pub mod programs;
/// The QEMU process.
mod qemu;
/// The machine itself.
mod virtual_machine;

pub use error::VmError;
pub use guest::Guest;
pub use node::GuestNode;
pub use programs::ProgramSet;
pub use qemu::Hardware;
pub use virtual_machine::VirtualMachine;

/// This machine's loopback address, as the virtual machine and its pods reach it.
pub const HOST: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 0, 2, 2);

/// The value, or a panic with all causes of the error.
///
/// # Panics
/// On an error.
pub fn ok<T, E: std::error::Error>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{}", polylet_harness::error::report(&error)),
    }
}
