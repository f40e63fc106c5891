//! `polylet upgrade --watch-starts`: starts of pods after an upgrade, compared with those before it.

use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::{Config, cause, report};
use polylet_trace::diff::{Comparison, DiffOptions, compare, table};
use polylet_trace::{TraceFilter, TraceSummary};
use polylet_wire::supervisor::v1 as wire;
use polylet_wire::supervisor::v1::supervisor_service_client::SupervisorServiceClient;
use polylet_wire::time::from_wire_opt;
use serde_json::json;
use tokio::time::Instant;

use super::history::upgrades;
use super::trace::{LiveTraces, TraceInput, printable};
use crate::args::trace::FailOn;
use crate::args::{OutputFormat, UpgradeArgs};
use crate::client::{self, ClientError};
use crate::core::upgrade::journal::StartComparison;
use crate::core::upgrade::starts_after::{
    is_given_up, last_starts, start_comparison, starts_in_words,
};
use crate::upgrade::starts_to_wire;

/// What is waited for after an upgrade.
pub(super) struct StartWatch<'a> {
    config: &'a Config,
    output: OutputFormat,
    wanted: usize,
    limit: Duration,
    fail_on: Option<FailOn>,
    before: Vec<TraceSummary>,
    /// The last run before the upgrade.
    last_run: u64,
}

/// The upgrade whose starts are watched.
struct WatchedRun {
    number: u64,
    services: Vec<String>,
    finished_at: Timestamp,
}

impl<'a> StartWatch<'a> {
    /// Remembers the starts before the upgrade, if those after it are to be watched.
    pub(super) async fn begin(
        config: &'a Config,
        args: &UpgradeArgs,
        output: OutputFormat,
    ) -> Result<Option<StartWatch<'a>>, ClientError> {
        let Some(wanted) = args.watch_starts else {
            return Ok(None);
        };
        let wanted = usize::from(wanted);
        let records = upgrades(config).await?;
        let is_meant = |record: &&wire::UpgradeRecord| match &args.service {
            Some(service) => record.service == service.trim_start_matches("polylet-"),
            None => true,
        };
        let swaps = records.iter().filter(is_meant);
        let since = swaps.filter_map(|record| from_wire_opt(record.finished_at.as_ref()));
        let starts = TraceInput::open(config, &[])?
            .summaries(&of_starts(None))
            .await?;
        Ok(Some(StartWatch {
            config,
            output,
            wanted,
            limit: args.watch_for,
            fail_on: args.fail_on,
            before: last_starts(starts, since.max(), wanted),
            last_run: records.last().map_or(0, |record| record.run),
        }))
    }

    /// Waits for the starts and compares them. An error if they are slower and that is a failure; then the services
    /// in the result are to be rolled back. `is_changed` says whether a service has another program.
    pub(super) async fn finish(self, is_changed: bool) -> Result<Option<GivenUp>, ClientError> {
        let records = upgrades(self.config).await?;
        let Some(run) = watched_run(records, self.last_run + 1, is_changed)? else {
            return Ok(None);
        };
        self.print_beginning();
        let after = self.starts_since(run.finished_at).await?;
        let options = DiffOptions {
            names: ["before the upgrade", "after it"].map(str::to_owned),
            ..DiffOptions::default()
        };
        let comparison = compare(&self.before, &after, &options);
        let starts = start_comparison(&comparison);
        self.print_result(&comparison, &starts);
        self.record(run.number, &starts).await;
        if !is_given_up(&starts, self.fail_on.is_some()) {
            return Ok(None);
        }
        // Whoever has begun another run knows better.
        let last = upgrades(self.config).await?;
        if last.last().is_some_and(|last| last.run != run.number) {
            return Err(ClientError::NotUpgraded(
                "starts of pods are slower, but another upgrade has begun meanwhile: nothing is rolled back"
                    .to_owned(),
            ));
        }
        Ok(Some(GivenUp {
            services: run.services,
            reason: starts_in_words(&starts),
        }))
    }

    /// The starts that began after a time, until there are enough of them or the time is over.
    async fn starts_since(&self, since: Timestamp) -> Result<Vec<TraceSummary>, ClientError> {
        let deadline = Instant::now() + self.limit;
        let mut traces = LiveTraces::start(self.config, of_starts(Some(since))).await?;
        let mut starts = Vec::new();
        while starts.len() < self.wanted {
            let Ok(next) = tokio::time::timeout_at(deadline, traces.next()).await else {
                break;
            };
            let (start, _) = next?;
            // A start that was under way ran partly with the version before.
            if start.start >= since {
                starts.push(start);
            }
        }
        Ok(starts)
    }

    fn print_beginning(&self) {
        if self.output == OutputFormat::Text {
            let (wanted, limit) = (self.wanted, self.limit);
            super::print(&format!(
                "waiting for {wanted} starts of pods, at most {limit:?}\n"
            ));
        }
    }

    fn print_result(&self, comparison: &Comparison, starts: &StartComparison) {
        if self.output == OutputFormat::Json {
            let line = json!({ "starts": starts, "comparison": comparison });
            super::print(&format!("{line}\n"));
            return;
        }
        let text = format!(
            "\n{}\nstarts: {}\n",
            table(comparison),
            starts_in_words(starts)
        );
        super::print(&printable(&text));
    }

    /// Adds the result to the history. What follows from it does not depend on that.
    async fn record(&self, run: u64, starts: &StartComparison) {
        let recorded = async {
            let channel = client::connect(self.config, "supervisor")?;
            let mut supervisor = SupervisorServiceClient::new(channel);
            let request = wire::RecordStartsRequest {
                run,
                starts: Some(starts_to_wire(starts.clone())),
            };
            client::call("supervisor", supervisor.record_starts(request)).await
        };
        if let Err(error) = recorded.await {
            eprintln!(
                "polylet: the result is not in the history: {}",
                report(&error)
            );
        }
    }
}

/// An upgrade after which pods start more slowly.
pub(super) struct GivenUp {
    /// The services to roll back.
    pub(super) services: Vec<String>,
    /// What is slower.
    pub(super) reason: String,
}

/// The upgrade that has ended; none if everything ran already.
fn watched_run(
    mut records: Vec<wire::UpgradeRecord>,
    number: u64,
    is_changed: bool,
) -> Result<Option<WatchedRun>, ClientError> {
    records.retain(|record| record.run == number);
    let ends = records.iter().map(|record| record.finished_at.as_ref());
    match ends.filter_map(from_wire_opt).max() {
        Some(finished_at) => Ok(Some(WatchedRun {
            number,
            services: records.into_iter().map(|record| record.service).collect(),
            finished_at,
        })),
        None if is_changed => Err(ClientError::NotUpgraded(format!(
            "upgrade {number} is not in the history: the starts of pods after it are not watched"
        ))),
        None => Ok(None),
    }
}

fn of_starts(since: Option<Timestamp>) -> TraceFilter {
    TraceFilter {
        root: Some(cause::root::POD_START.to_owned()),
        since,
        ..TraceFilter::default()
    }
}

#[cfg(test)]
mod tests {
    use polylet_wire::time::to_wire;

    use super::*;

    #[test]
    fn an_upgrade_that_is_not_in_the_history_is_no_success() {
        let record = |run| wire::UpgradeRecord {
            run,
            service: "pleg".to_owned(),
            finished_at: Some(to_wire(Timestamp::UNIX_EPOCH)),
            ..wire::UpgradeRecord::default()
        };
        for (records, is_changed, expected) in [
            (vec![record(1), record(2)], true, Ok(Some(2))),
            (vec![record(1)], true, Err(())),
            (Vec::new(), true, Err(())),
            // Everything ran already.
            (vec![record(1)], false, Ok(None)),
        ] {
            let found = watched_run(records, 2, is_changed);
            let found = found.map(|run| run.map(|run| run.number)).map_err(drop);
            assert_eq!(found, expected);
        }
    }
}
