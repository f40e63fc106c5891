//! Steps of the coordinator that wait for device-manager.

use polylet_kit::CancellationToken;
use polylet_model::constants::reason;
use polylet_sync_coordinator::core::step::{Step, StepOutcome};
use polylet_sync_coordinator::runtime::StepContext;
use tokio::sync::oneshot;

use super::{Next, deliver_outcome, flaky};
use crate::calls::{Work, step_failure};
use crate::node::devices;
use crate::world::World;

/// Sends the request. Requests of one connection arrive in order.
pub(super) fn begin(
    world: &mut World,
    context: StepContext,
    cancel: Option<CancellationToken>,
) -> Work {
    let answer = devices::send(world, &context);
    Work::Devices {
        context: Box::new(context),
        cancel,
        answer,
    }
}

/// Looks for the response.
pub fn advance(
    world: &mut World,
    alive: bool,
    context: Box<StepContext>,
    cancel: Option<CancellationToken>,
    answer: Option<oneshot::Receiver<StepOutcome>>,
) -> Next {
    // device-manager goes on with a request whose sender is gone.
    if !alive {
        return (None, true);
    }
    if cancel.as_ref().is_some_and(CancellationToken::is_cancelled) {
        return deliver_outcome(world, &context, StepOutcome::Cancelled);
    }
    let Some(mut answer) = answer else {
        let outcome = unavailable(&context, "device-manager is unavailable");
        return deliver_outcome(world, &context, outcome);
    };
    let outcome = match answer.try_recv() {
        _ if flaky(world, 3) => unavailable(&context, "deadline exceeded"),
        Ok(outcome) => outcome,
        Err(oneshot::error::TryRecvError::Closed) => {
            unavailable(&context, "device-manager has ended")
        }
        Err(oneshot::error::TryRecvError::Empty) => {
            let again = Work::Devices {
                context,
                cancel,
                answer: Some(answer),
            };
            return (Some(again), false);
        }
    };
    deliver_outcome(world, &context, outcome)
}

fn unavailable(context: &StepContext, message: &str) -> StepOutcome {
    let reason = match context.step {
        Step::PrepareDevices { .. } => reason::CREATE_CONTAINER_CONFIG_ERROR,
        _ => "DeviceError",
    };
    StepOutcome::Failed(step_failure(reason, message))
}
