//! Logs to stderr, or to the journal with fields if stderr is connected to it, and spans to the supervisor. Spans are lossy by design: work never waits for them,
//! the queue is bounded, dropped ones are counted, and a missing receiver costs one log line.

mod export;
mod identity;
mod journal;
mod line;
mod past_span;
mod verbosity;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, registry, reload};

use crate::sampling::{RecordEverything, TraceSampler};
use export::{QueueProcessor, SpanQueue};
pub use identity::{ProcessIdentity, full_version};
pub use past_span::{PastSpan, record};
pub use verbosity::{VerbosityError, set_verbosity, verbosity_filter};

/// Environment variable that overrides the configuration's `logLevel`: a level, or `target=level`
/// pairs.
pub const LOG_VARIABLE: &str = "POLYLET_LOG";

/// OpenTelemetry's environment variable that switches its SDKs off: `true`, in any case.
const SDK_DISABLED: &str = "OTEL_SDK_DISABLED";

/// Whether spans are recorded: they are, unless the environment says that they are not. Sampling does not matter.
pub(crate) fn is_recording(environment: impl Fn(&str) -> Option<String>) -> bool {
    !environment(SDK_DISABLED).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}

/// Properties of the process, for logs and spans.
pub struct Setup<'a> {
    /// What it is called.
    pub identity: ProcessIdentity<'a>,
    /// `logLevel` of the configuration.
    pub log_level: &'a str,
    /// Which traces the node exports; all are recorded.
    pub sampler: TraceSampler,
    /// The OTLP socket for spans; `None` records none.
    pub span_socket: Option<&'a Path>,
}

/// Telemetry of the process. Logging works after [`init`], sending of spans after
/// [`Telemetry::start`].
pub struct Telemetry {
    spans: Option<Spans>,
}

struct Spans {
    queue: Arc<SpanQueue>,
    resource: Resource,
    socket: PathBuf,
    // Spans are recorded only while their provider exists.
    _provider: SdkTracerProvider,
}

/// Sets up logging and spans for the process, once.
pub fn init(setup: &Setup<'_>) -> Telemetry {
    let log = std::env::var(LOG_VARIABLE).unwrap_or_else(|_| setup.log_level.to_owned());
    let (filter, wrong) = log_filter(&log);
    let journal = journal::JournalLayer::from_environment(setup.identity.service);
    let output = match journal {
        Some(journal) => journal.boxed(),
        None => tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .event_format(line::OneLine::new(setup.identity.service))
            .boxed(),
    };
    let (filter, handle) = reload::Layer::new(filter);
    let logs = output.with_filter(filter);
    let spans = setup.span_socket.map(|socket| spans(setup, socket));
    let layer = spans.as_ref().map(|spans| {
        tracing_opentelemetry::layer()
            .with_tracer(spans._provider.tracer("polylet"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            // Our own spans only: not those of libraries, which include the exporter's calls.
            .with_filter(Targets::new().with_target("polylet", LevelFilter::INFO))
    });
    // Fails only where a subscriber is set already, as in tests; that one stays.
    if registry().with(logs).with(layer).try_init().is_ok() {
        verbosity::set_handle(handle);
    }
    if wrong {
        tracing::warn!(filter = log, "invalid log level or filter; using info");
    }
    Telemetry { spans }
}

/// The filter of the log lines, and whether `text` is invalid. A bare level is for our own crates;
/// libraries then log warnings and errors.
fn log_filter(text: &str) -> (Targets, bool) {
    let ours = |level| {
        Targets::new()
            .with_default(LevelFilter::WARN.min(level))
            .with_target("polylet", level)
    };
    if let Ok(level) = text.trim().parse::<LevelFilter>() {
        return (ours(level), false);
    }
    match text.parse::<Targets>() {
        Ok(targets) if text.contains('=') => (targets, false),
        _ => (ours(LevelFilter::INFO), true),
    }
}

fn spans(setup: &Setup<'_>, socket: &Path) -> Spans {
    let queue = Arc::new(SpanQueue::new(setup.identity.service));
    let attributes = setup.identity.attributes().into_iter();
    let resource = Resource::builder_empty()
        .with_attributes(attributes.map(|(name, value)| KeyValue::new(name, value)))
        .build();
    let provider = SdkTracerProvider::builder()
        .with_sampler(RecordEverything(setup.sampler))
        .with_span_processor(QueueProcessor::new(queue.clone()))
        .with_resource(resource.clone())
        .build();
    crate::cause::set_sampler(setup.sampler);
    past_span::set_tracer(provider.tracer("polylet"));
    Spans {
        queue,
        resource,
        socket: socket.to_owned(),
        _provider: provider,
    }
}

impl Telemetry {
    /// Starts the task that sends spans. Needs a tokio runtime.
    pub fn start(&self) {
        if let Some(spans) = &self.spans {
            let (queue, socket) = (spans.queue.clone(), spans.socket.clone());
            tokio::spawn(export::run(queue, spans.resource.clone(), socket));
        }
    }

    /// Waits until the spans recorded so far are sent or dropped, at most for `timeout`.
    pub async fn flush(&self, timeout: Duration) {
        if let Some(spans) = &self.spans {
            let _ = tokio::time::timeout(timeout, spans.queue.flushed()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn parses_filters() {
        let (filter, wrong) = log_filter("debug");
        assert!(!wrong);
        assert!(filter.would_enable("polylet_pleg::run", &Level::DEBUG));
        assert!(!filter.would_enable("h2::codec", &Level::INFO));
        let (filter, wrong) = log_filter("error");
        assert!(!wrong && !filter.would_enable("h2", &Level::WARN));
        let (filter, wrong) = log_filter("warn,polylet_pleg=trace");
        assert!(!wrong && filter.would_enable("polylet_pleg", &Level::TRACE));
        let (filter, wrong) = log_filter("nonsense");
        assert!(wrong && filter.would_enable("polylet_kit", &Level::INFO));
    }
    #[test]
    fn recording_is_switched_off_by_one_variable_alone() {
        for (value, expected) in [
            (None, true),
            (Some(""), true),
            (Some("false"), true),
            (Some("1"), true),
            (Some("true"), false),
            (Some(" TRUE "), false),
        ] {
            let environment = |name: &str| {
                assert_eq!(name, "OTEL_SDK_DISABLED");
                value.map(str::to_owned)
            };
            assert_eq!(is_recording(environment), expected, "{value:?}");
        }
    }

    #[test]
    fn our_spans_are_queued_and_others_are_not() {
        let telemetry = init(&Setup {
            identity: ProcessIdentity {
                service: "test",
                version: "0",
                incarnation: "i",
                node: "n",
            },
            log_level: "off",
            sampler: TraceSampler::default(),
            span_socket: Some(Path::new("/nonexistent.sock")),
        });
        drop(tracing::info_span!(target: "polylet_x", "ours"));
        let root = tracing::info_span!(target: "polylet_x", "root");
        crate::cause::start_trace(&root);
        let cause = crate::cause::from_span(&root);
        drop(root);
        let past = |start: i64, end: i64| PastSpan {
            name: "past",
            started_at: jiff::Timestamp::from_second(start).unwrap(),
            ended_at: jiff::Timestamp::from_second(end).unwrap(),
            attributes: vec![("k8s.container.name", "init".to_owned())],
        };
        let traceparent = record(past(5, 7), &cause).unwrap();
        assert_eq!(traceparent.get(..35), cause.traceparent.get(..35));
        assert_eq!(record(past(7, 5), &cause), None, "times are reversed");
        assert_eq!(record(past(5, 7), &Default::default()), None, "no trace");
        drop(tracing::debug_span!(target: "polylet_x", "too fine"));
        drop(tracing::info_span!(target: "h2", "theirs"));
        let spans = telemetry.spans.unwrap();
        let queued = spans.queue.take();
        let names: Vec<_> = queued.iter().map(|span| span.name.as_ref()).collect();
        assert_eq!(names, ["ours", "root", "past"]);
        let (root, past) = (&queued[1], &queued[2]);
        // Both are steps below the root that the supervisor derives.
        assert_eq!(past.parent_span_id, root.parent_span_id);
        let caused = past.links.iter().map(|link| link.span_context.span_id());
        assert!(caused.eq([root.span_context.span_id()]));
        let seconds = |time: std::time::SystemTime| {
            time.duration_since(std::time::UNIX_EPOCH)
                .unwrap()
                .as_secs()
        };
        assert_eq!((seconds(past.start_time), seconds(past.end_time)), (5, 7));
    }
}
