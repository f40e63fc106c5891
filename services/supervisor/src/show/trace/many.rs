//! `polylet trace list`, `top` and `why`.

use jiff::Timestamp;
use polylet_trace::{
    AttributeDifference, TraceFilter, TraceSummary, attribute_differences, hex, path_statistics,
    slow_steps, what_if,
};
use serde_json::{Value, json};

use super::print;
use super::source::TraceInput;
use crate::args::OutputFormat;
use crate::args::trace::{GroupBy, TopArgs, WhyArgs};
use crate::client::ClientError;
use crate::core::trace_list::{summary_as_json, trace_list};
use crate::core::trace_top::{path_statistics_json, path_statistics_text};
use crate::core::trace_why::{attributes_json, attributes_text, slow_steps_json, slow_steps_text};
use crate::show;

/// Prints traces, the latest last.
pub(super) async fn list(
    source: &TraceInput<'_>,
    filter: &TraceFilter,
    output: OutputFormat,
) -> Result<(), ClientError> {
    if output == OutputFormat::Json {
        // None are a list, too.
        let traces = source.summaries(filter).await?;
        let traces: Vec<Value> = traces.iter().map(summary_as_json).collect();
        show::json(&json!({ "traces": traces }));
        return Ok(());
    }
    let traces = source.some_summaries(filter).await?;
    print(&trace_list(
        &traces,
        filter.root.is_none(),
        Timestamp::now(),
    ));
    Ok(())
}

/// Prints where the time of traces went.
pub(super) async fn top(
    source: &TraceInput<'_>,
    args: &TopArgs,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let by = args.by.grouping();
    let traces = source.some_summaries(&args.select.filter.filter()).await?;
    let statistics = path_statistics(&traces, by);
    let mut effects = Vec::new();
    for change in &args.what_if {
        let Some(effect) = what_if(&traces, by, change) else {
            let groups = statistics.groups.iter().map(|group| group.label.as_str());
            let seen = groups.collect::<Vec<_>>().join(", ");
            let message = format!("no trace waited for {}; steps are {seen}", change.step);
            return Err(ClientError::NotFound(super::printable(&message)));
        };
        effects.push((change.clone(), effect));
    }
    match output {
        OutputFormat::Json => show::json(&path_statistics_json(&statistics, &effects)),
        OutputFormat::Text => {
            let title = match args.by {
                GroupBy::Step => "STEP",
                GroupBy::Service => "SERVICE",
                GroupBy::Owner => "TIME OF",
                GroupBy::Shape => "SHAPE",
                GroupBy::Version => "VERSIONS",
            };
            print(&path_statistics_text(&statistics, title, &effects));
        }
    }
    Ok(())
}

/// Prints which steps of a trace took longer than in others of its root and shape, and in which attributes it differs.
pub(super) async fn why(
    source: &TraceInput<'_>,
    args: &WhyArgs,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let trace = source.find_summary(&args.pod).await?;
    let filter = TraceFilter {
        root: Some(trace.root.clone()),
        shape: Some(trace.shape.clone()),
        ..args.select.filter.filter()
    };
    let slow = slow_steps(&trace, &source.summaries(&filter).await?);
    let differences = differences(source, &trace, &filter).await?;
    match output {
        OutputFormat::Json => {
            let mut shown = slow_steps_json(&trace, &slow);
            if let Some(fields) = shown.as_object_mut() {
                fields.insert("attributes".to_owned(), attributes_json(&differences));
            }
            show::json(&shown);
        }
        OutputFormat::Text => {
            print(&slow_steps_text(&trace, &slow));
            print(&attributes_text(&differences));
        }
    }
    Ok(())
}

/// The attributes in which a trace differs from those that a filter selects, as far as their spans are known.
async fn differences(
    source: &TraceInput<'_>,
    trace: &TraceSummary,
    filter: &TraceFilter,
) -> Result<Vec<AttributeDifference>, ClientError> {
    let spans = async {
        let (trace, _) = source.find(&hex(&trace.id)).await?;
        let (others, _) = source.traces(filter).await?;
        Ok(attribute_differences(&trace, &others))
    };
    match spans.await {
        // They were dropped; the summaries remain.
        Err(ClientError::NotFound(_)) => Ok(Vec::new()),
        found => found,
    }
}
