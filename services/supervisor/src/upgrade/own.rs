//! Replacing the supervisor's own program.

use std::time::Duration;

use polylet_kit::report;
use polylet_wire::supervisor::v1::UpgradeStep;

use super::driver::UpgradeDriver;
use super::progress::ProgressSender;
use crate::backend::{BackendError, own};
use crate::core::order::SUPERVISOR;
use crate::core::upgrade::next::SwapAction;
use crate::core::upgrade::own::on_refusal;
use crate::handover::set_alarm;

/// How long a new program may take beside the time until it is in step, before the kernel ends it.
const START_TIME: Duration = Duration::from_secs(30);

impl UpgradeDriver {
    /// Whether the supervisor itself is upgraded.
    pub(super) fn is_own(&self) -> bool {
        self.journal.swap.service == SUPERVISOR
    }

    /// The version of the program in this process, out of those of the swap.
    pub(super) fn own_version(&self) -> Option<String> {
        let swap = &self.journal.swap;
        let versions = self.is_own().then_some([&swap.to, &swap.from]);
        let runs = |version: &&String| own::runs(&self.store.file(SUPERVISOR, version));
        versions?.into_iter().find(runs).cloned()
    }

    /// The program in this process does what it should, or is given up: the kernel need not end it.
    pub(super) fn end_deadline(&self) {
        if self.is_own() {
            set_alarm(Duration::ZERO);
        }
    }

    /// Replaces the program of this process; `false` at the end. The other program continues the upgrade.
    pub(super) async fn replace_own(&mut self) -> bool {
        let target = self.journal.target().to_owned();
        let message = format!("{target} continues in the process of the supervisor");
        self.step(UpgradeStep::Restarted, &message);
        // The caller's stream would hold up the end of the server.
        self.progress = ProgressSender::log_only();
        let program = self.store.file(SUPERVISOR, &target);
        let present = self.own_version();
        let present = present.filter(|version| *version != target);
        let previous = present.map(|version| self.store.file(SUPERVISOR, &version));
        let timeout = Duration::from_millis(self.journal.timeout_ms);
        let error = self
            .own
            .replace(program, previous, timeout + START_TIME)
            .await;
        if matches!(error, BackendError::Stopping) {
            // The next supervisor continues.
            return false;
        }
        match on_refusal(&self.journal, report(&error)) {
            SwapAction::Finish(outcome) => self.finish(outcome).await,
            _ => true,
        }
    }
}
