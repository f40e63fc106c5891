//! Following an upgrade over the replacement of the supervisor's own program, with which the stream of its steps
//! ends. What follows is in the history.

use std::time::{Duration, Instant};

use polylet_kit::Config;
use polylet_wire::supervisor::v1::{UpgradeProgress, UpgradeRecord, UpgradeStep};

use super::history::upgrades;
use super::upgrade_steps::{STEP_TIMEOUT, print, word};
use crate::args::OutputFormat;
use crate::client::ClientError;
use crate::core::order::SUPERVISOR;

/// The delay between two looks at the history.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// One run of upgrades or rollbacks.
pub(super) struct FollowedRun<'a> {
    config: &'a Config,
    timeout: Duration,
    output: OutputFormat,
    /// The last run before it.
    before: u64,
    /// The supervisor's program is being replaced.
    is_replaced: bool,
    /// Services whose end was printed.
    ended: Vec<String>,
}

impl<'a> FollowedRun<'a> {
    /// The run that is begun next. `timeout` is the time of a service until it is in step.
    pub(super) async fn begin(
        config: &'a Config,
        timeout: Duration,
        output: OutputFormat,
    ) -> Result<FollowedRun<'a>, ClientError> {
        let last = upgrades(config)
            .await?
            .last()
            .map_or(0, |record| record.run);
        Ok(FollowedRun {
            config,
            timeout,
            output,
            before: last,
            is_replaced: false,
            ended: Vec::new(),
        })
    }

    /// Prints a step.
    pub(super) fn print(&mut self, step: UpgradeProgress) {
        print(&step, self.output);
        match step.step() {
            UpgradeStep::Restarted if step.service == SUPERVISOR => self.is_replaced = true,
            UpgradeStep::Done | UpgradeStep::RolledBack | UpgradeStep::Failed => {
                self.ended.push(step.service);
            }
            _ => {}
        }
    }

    /// The stream of steps has ended, with the run or with the supervisor's program. Returns whether a service has
    /// another program.
    pub(super) async fn end(mut self, ended: Result<(), ClientError>) -> Result<bool, ClientError> {
        if self.is_replaced {
            self.follow().await?;
        } else {
            ended?;
        }
        Ok(!self.ended.is_empty())
    }

    /// Waits in the history for the end of the run.
    async fn follow(&mut self) -> Result<(), ClientError> {
        let timeout = self.timeout.saturating_mul(2) + STEP_TIMEOUT;
        let mut last_change = Instant::now();
        let mut last_seen = Vec::new();
        loop {
            match upgrades(self.config).await {
                Ok(mut records) => {
                    records.retain(|record| record.run > self.before);
                    self.print_ended(&records);
                    if records.iter().all(|record| record.finished_at.is_some()) {
                        return result(&records);
                    }
                    if records != last_seen {
                        last_change = Instant::now();
                        last_seen = records;
                    }
                }
                // The supervisor may have been restarted.
                Err(error) if last_change.elapsed() > timeout => return Err(error),
                Err(_) => {}
            }
            if last_change.elapsed() > timeout {
                return Err(ClientError::NoResponse {
                    service: SUPERVISOR,
                    message: format!("no step within {timeout:?}"),
                });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn print_ended(&mut self, records: &[UpgradeRecord]) {
        for record in records {
            if record.finished_at.is_none() || self.ended.contains(&record.service) {
                continue;
            }
            let message = match record.step() {
                UpgradeStep::Done => format!("{} is in step with its peers", record.to_version),
                UpgradeStep::RolledBack => format!("{} runs again", record.from_version),
                _ => record.cause.clone(),
            };
            self.print(UpgradeProgress {
                service: record.service.clone(),
                step: record.step,
                message,
            });
        }
    }
}

/// The result of a run that has ended. It had begun, so it is an error if nothing is recorded of it.
fn result(records: &[UpgradeRecord]) -> Result<(), ClientError> {
    if records.is_empty() {
        return Err(ClientError::NotUpgraded(
            "the upgrade is not in the history: its result is unknown".to_owned(),
        ));
    }
    let failed = records
        .iter()
        .find(|record| record.step() != UpgradeStep::Done);
    match failed {
        None => Ok(()),
        Some(record) => {
            let (service, cause) = (&record.service, &record.cause);
            let result = word(record.step());
            Err(ClientError::NotUpgraded(format!(
                "{service} was {result}: {cause}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_fails_with_its_first_failure() {
        let record = |service: &str, step: UpgradeStep| UpgradeRecord {
            service: service.to_owned(),
            step: step.into(),
            cause: "x".to_owned(),
            ..UpgradeRecord::default()
        };
        let done = record("pleg", UpgradeStep::Done);
        assert!(result(std::slice::from_ref(&done)).is_ok());
        let error = result(&[done, record("supervisor", UpgradeStep::RolledBack)]).unwrap_err();
        assert_eq!(error.to_string(), "supervisor was rolled back: x");
    }

    #[test]
    fn a_run_that_is_not_in_the_history_is_no_success() {
        let error = result(&[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the upgrade is not in the history: its result is unknown"
        );
    }
}
