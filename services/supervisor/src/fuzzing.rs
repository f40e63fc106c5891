//! Private parsers of foreign data, for the fuzz targets in `tests/fuzz`.

use std::path::Path;
use std::time::Instant;

use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use polylet_kit::report;

use crate::core::trace_buffer::TraceBuffer;
use crate::flags::{ParsedArgs, configuration, parse};
use crate::traces::convert;
use crate::upgrade::log::UpgradeLog;

/// Parses the arguments of `polylet run`, and derives the configuration unless they name files.
pub fn flags(args: Vec<String>) {
    match parse(args) {
        Ok(ParsedArgs::Run(args)) if args.config.is_none() && args.directory.is_none() => {
            // Values may be invalid.
            drop(configuration(args).map_err(|error| report(&error)));
        }
        Ok(_) => {}
        Err(error) => drop(report(&error)),
    }
}

/// Loads the state file of the supervisor in this directory. Returns the number of its records.
pub fn state_files(directory: &Path) -> Option<usize> {
    let log = UpgradeLog::open(directory);
    Some(log.ok()?.history().records.len())
}

/// Records the spans of a service, and finds them again.
pub fn spans(spans: &ResourceSpans, query: &str) {
    let now = Instant::now();
    let resource = convert::resource_of(spans);
    let mut buffer = TraceBuffer::new(100, 1 << 16);
    for span in spans.scope_spans.iter().flat_map(|scope| &scope.spans) {
        if let Some(record) = convert::record(&resource, span) {
            buffer.push(&record, now);
            let trace = buffer.trace(record.trace);
            trace
                .into_iter()
                .for_each(|record| drop(convert::to_wire(record)));
        }
    }
    buffer.find(query);
}
