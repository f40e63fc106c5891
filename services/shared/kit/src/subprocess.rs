//! Calls that may never return, in child processes that can be killed: the service's own binary with
//! a hidden subcommand.
//!
//! A [`SubprocessTask`] is plain data with a typed output and streamed progress. The service lists its
//! tasks in its descriptor; [`main`](crate::main) runs one of them when the process is such a child,
//! without configuration, telemetry or a runtime. A [`SubprocessPool`] starts the children and bounds
//! them: one that makes no progress for the task's deadline is killed, with the programs it started.
//! A process that hangs in the kernel outlives its kill; until it ends, it counts, and no other is
//! started with its key.

mod child;
mod permits;
mod pool;
mod protocol;
mod task;

pub use child::SubprocessEntry;
pub(crate) use child::run_from_args;
pub use permits::SubprocessLimits;
pub use pool::{SubprocessError, SubprocessPool};
pub use task::{SubprocessTask, TaskProgress};
