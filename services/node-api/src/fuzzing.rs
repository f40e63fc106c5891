//! Private parsers of foreign data, for the fuzz targets in `tests/fuzz`.

use jiff::Timestamp;
use polylet_metrics::ExpositionFormat;
use polylet_wire::pleg::v1::PodState;
use polylet_wire::prober::v1::ListProbeCountsResponse;
use serde_json::Value;

use crate::convert;
use crate::core::streaming::{remote_command, remote_status, request};
use crate::core::{access, log_query, metrics, pods, probes};
use crate::streaming::runtime_url;

/// Parses the query of a request for a log or a stream.
pub fn log_query(query: &str, now: Timestamp) {
    let pairs: Vec<(String, String)> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    // Most queries are invalid.
    let _ = log_query::parse(&pairs, true, now);
    let _ = request::StreamOptions::parse(&pairs);
    let _ = request::forwarded_ports(&pairs);
    // So are most URLs of a runtime, and most results of a command.
    let _ = runtime_url::parse(query);
    remote_status::status(query.as_bytes());
    remote_command::client_message(query.as_bytes());
    ExpositionFormat::negotiate(query);
}

/// Determines the attributes of a request.
pub fn request(method: &str, path: &str) {
    access::attributes(method, path);
}

/// Puts a manifest and a status together.
pub fn pod(manifest: &[u8], status: &[u8]) {
    pods::with_status(manifest, status);
}

/// Computes the metrics of a summary.
pub fn summary(summary: &Value) {
    let (facts, counts) = (
        metrics::ScrapedNode::default(),
        metrics::NodeCounts::default(),
    );
    let format = ExpositionFormat::OpenMetrics;
    metrics::node(format, &facts, &counts, Vec::new(), summary);
}

/// Converts the messages of the peers.
pub fn messages(states: &[PodState], counts: ListProbeCountsResponse) {
    convert::node_counts(states);
    for state in states {
        convert::running_pod(state).as_ref().map(pods::running);
    }
    let series = counts.probes.into_iter().filter_map(convert::probe_series);
    let series: Vec<_> = series.collect();
    probes::render(&counts.bucket_bounds, &series);
}
