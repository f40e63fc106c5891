//! Reports of steps to whoever asked for an upgrade.

use futures::channel::mpsc::UnboundedSender;
use polylet_wire::supervisor::v1 as wire;
use tonic::Status;

/// Where steps are reported. The upgrade goes on when nobody listens any more.
#[derive(Clone)]
pub(crate) struct ProgressSender {
    sender: Option<UnboundedSender<Result<wire::UpgradeProgress, Status>>>,
}

impl ProgressSender {
    pub(crate) fn new(
        sender: UnboundedSender<Result<wire::UpgradeProgress, Status>>,
    ) -> ProgressSender {
        ProgressSender {
            sender: Some(sender),
        }
    }

    /// Steps go to the log only.
    pub(crate) fn log_only() -> ProgressSender {
        ProgressSender { sender: None }
    }

    pub(crate) fn step(&self, service: &str, step: wire::UpgradeStep, message: &str) {
        tracing::info!(
            service,
            step = step.as_str_name(),
            detail = message,
            "upgrade"
        );
        self.send(Ok(wire::UpgradeProgress {
            service: service.to_owned(),
            step: step.into(),
            message: message.to_owned(),
        }));
    }

    /// The end of an upgrade that did not succeed.
    pub(crate) fn fail(&self, status: Status) {
        self.send(Err(status));
    }

    fn send(&self, progress: Result<wire::UpgradeProgress, Status>) {
        if let Some(sender) = &self.sender {
            let _ = sender.unbounded_send(progress);
        }
    }
}
