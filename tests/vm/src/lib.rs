//! A virtual machine for tests of the node: Debian 13, systemd as process 1, cgroup v2, Debian's
//! containerd, a kernel of its own and a disk that loses its cache with the power.
//!
//! `tests/vm/image` describes its root file system, which is built once. A [`VirtualMachine`] boots a
//! copy of it with QEMU, beside a read-only disk with the programs under test, and runs commands
//! through an agent on a serial port ([`Guest`]). It reaches servers on this machine's loopback
//! address as [`HOST`]. With a cluster on this machine, [`GuestNode`] makes it a node.
//!
//! ```no_run
//! # use std::path::Path;
//! # use polylet_vm::{Hardware, ProgramSet, VirtualMachine, VmError};
//! # async fn example(package: &Path, agent: &Path) -> Result<(), VmError> {
//! // In a test of this crate, the agent is `env!("CARGO_BIN_EXE_polylet-vm-agent")`.
//! let programs = ProgramSet::new(agent);
//! let mut vm = VirtualMachine::create(&programs, Hardware::default(), &|_| ()).await?;
//! vm.boot().await?;
//! // A file or a whole directory, with its modes.
//! vm.guest()?.copy(package, "/root/polylet.deb").await?;
//! // Fails if the script fails; `output` returns the result of any, with exit code and both streams.
//! vm.guest()?.sh("dpkg --install /root/polylet.deb; sync").await?;
//! let status = vm.guest()?.output("systemctl is-active polylet.service").await?;
//! assert_eq!((status.code, status.stdout.trim()), (Some(0), "active"));
//! // In order, from inside; a `Guest` is valid until the power is cut or switched off.
//! vm.reboot().await?;
//! // What was not synced is lost, or a part of it.
//! vm.cut_power(&mut fastrand::Rng::with_seed(7))?;
//! vm.boot().await?;
//! vm.power_off().await?;
//! vm.check_file_system()?;
//! vm.remove()
//! # }
//! ```
//!
//! A test that fails leaves the machine's console and the services' logs in the target directory's
//! `testbed/failed`; [`VirtualMachine::diagnose`] adds what the machine shows.
//!
//! `cargo verify -- --only vm` runs the tests. Environment variables: `POLYLET_VM_ACCEL=kvm` uses
//! hardware virtualization (emulation is the default), `POLYLET_TEST_ROUNDS` is the number of power
//! cuts, and `POLYLET_VM_SEED` repeats a run's choices.

/// The protocol of the machine's agent.
pub mod agent;
/// Credentials of a node.
pub mod credentials;
/// The disk.
pub mod disk;
/// Errors of the virtual machine.
pub mod error;
/// Commands in the machine.
pub mod guest;
/// The image that machines boot from.
pub mod image;
/// A node with a kubelet in the machine.
pub mod kubelet_node;
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
pub use kubelet_node::KubeletNode;
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
