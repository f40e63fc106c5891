//! Names a step that has no result after its usual time: in the health of the service while it lasts,
//! and in an event of its pod.

use std::future::Future;
use std::pin::pin;

use polylet_kit::HealthConditions;
use tokio::time::timeout;

use super::{RuntimeManager, StepContext, events};

/// The reason of the health condition and of the event.
const DELAYED: &str = "PodSyncDelayed";

/// The condition of one step, which ends with it.
struct DelayedStep {
    conditions: HealthConditions,
    object: String,
}

impl DelayedStep {
    fn new(conditions: HealthConditions, object: String, message: &str) -> Self {
        conditions.set(DELAYED, &object, message);
        DelayedStep { conditions, object }
    }
}

impl Drop for DelayedStep {
    fn drop(&mut self) {
        self.conditions.clear(DELAYED, &self.object);
    }
}

/// Awaits the execution of a step, and names it when that takes long.
pub async fn with_report<T>(
    manager: &RuntimeManager,
    context: &StepContext,
    execution: impl Future<Output = T>,
) -> T {
    let report = context.step.delay_report();
    let mut execution = pin!(execution);
    if let Ok(result) = timeout(report.after, execution.as_mut()).await {
        return result;
    }
    let (pod, step) = (context.pod_name(), &context.step);
    let message = format!("{step}: no result after {} s", report.after.as_secs());
    // A pod may have several: one per container.
    let object = format!("{pod} ({step})");
    let _delayed = DelayedStep::new(manager.ctx.conditions(), object, &message);
    if report.event {
        events::record_pod(manager, context, true, DELAYED, message);
    }
    execution.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_ends_with_the_step() {
        let conditions = HealthConditions::default();
        let step = DelayedStep::new(
            conditions.clone(),
            "default/web (sandbox 0)".to_owned(),
            "x",
        );
        let all = conditions.to_wire();
        assert_eq!((all.len(), all[0].reason.as_str()), (1, DELAYED));
        drop(step);
        assert_eq!(conditions.to_wire(), []);
    }
}
