//! `polylet trace diff`.

use std::path::Path;

use polylet_kit::Config;
use polylet_trace::diff::{Comparison, DiffOptions, ShiftVerdict, compare, table};
use polylet_trace::format::html;
use polylet_trace::{TraceFilter, TraceSummary};

use super::new_file::NewFile;
use super::print;
use super::source::TraceInput;
use crate::args::OutputFormat;
use crate::args::trace::{DiffArgs, FailOn, TraceSet, TraceSetKind};
use crate::client::ClientError;
use crate::show;

/// Compares two sets of traces.
pub(super) async fn diff(
    config: &Config,
    args: &DiffArgs,
    output: OutputFormat,
) -> Result<(), ClientError> {
    if args.a.kind == args.b.kind {
        let name = super::printable(&args.a.name);
        let message = format!("A and B are the same set of traces: {name}");
        return Err(ClientError::Usage(message));
    }
    let mut common = TraceInput::open(config, &args.select.files.from)?;
    let mut invalid = None;
    let compared = sets(config, args, &common, &mut invalid).await;
    let result = compared.and_then(|comparison| {
        args.html
            .iter()
            .try_for_each(|path| write_page(path, &comparison))?;
        finish(&comparison, args.fail_on, output)
    });
    common.finish(invalid.map_or(result, Err))
}

/// Reads and compares both sets. `invalid`: the first line that could not be read.
async fn sets(
    config: &Config,
    args: &DiffArgs,
    common: &TraceInput<'_>,
    invalid: &mut Option<ClientError>,
) -> Result<Comparison, ClientError> {
    let filter = args.select.filter.filter();
    let mut both = [const { Vec::new() }; 2];
    for (set, summaries) in [&args.a, &args.b].into_iter().zip(&mut both) {
        *summaries = match &set.kind {
            TraceSetKind::File(path) => {
                let mut file = TraceInput::open(config, std::slice::from_ref(path))?;
                let found = selected(set, &file, &filter).await;
                *invalid = invalid.take().or_else(|| file.take_invalid());
                found?
            }
            _ => selected(set, common, &filter).await?,
        };
    }
    let [a, b] = &both;
    let options = DiffOptions {
        names: [&args.a, &args.b].map(|set| set.name.clone()),
        ..DiffOptions::default()
    };
    Ok(compare(a, b, &options))
}

/// The traces of a set that the filter selects; at least one.
async fn selected(
    set: &TraceSet,
    input: &TraceInput<'_>,
    filter: &TraceFilter,
) -> Result<Vec<TraceSummary>, ClientError> {
    let mut filter = filter.clone();
    match &set.kind {
        TraceSetKind::File(_) => {}
        TraceSetKind::Window { since, until } => {
            filter.since = filter.since.max(*since);
            filter.until = match (filter.until, *until) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        TraceSetKind::Version { service, version } => {
            filter.versions.insert(service.clone(), version.clone());
        }
    }
    let found = input.some_summaries(&filter).await;
    found.map_err(|error| match error {
        ClientError::NotFound(message) => {
            ClientError::NotFound(super::printable(&format!("{}: {message}", set.name)))
        }
        error => error,
    })
}

/// Writes the comparison as a page.
fn write_page(path: &Path, comparison: &Comparison) -> Result<(), ClientError> {
    let [a, b] = &comparison.names;
    let title = format!("{a} and {b}");
    let mut file = NewFile::create(path)?;
    file.write(|to| html::diff_report(&title, comparison, to))?;
    file.finish()
}

/// Prints the comparison; an error if it is to fail.
fn finish(
    comparison: &Comparison,
    fail_on: Option<FailOn>,
    output: OutputFormat,
) -> Result<(), ClientError> {
    match output {
        OutputFormat::Json => {
            let value = serde_json::to_value(comparison);
            show::json(&value.unwrap_or_default());
        }
        OutputFormat::Text => print(&table(comparison)),
    }
    match fail_on {
        Some(FailOn::Slower) if comparison.has(ShiftVerdict::Slower) => Err(ClientError::FailedOn(
            "the second set of traces is slower".to_owned(),
        )),
        _ => Ok(()),
    }
}
