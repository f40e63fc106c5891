//! Lines to spans, and spans to traces.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, Read};

use jiff::Timestamp;

use super::SERVICE_PREFIX;
use super::encoding::STATUS_ERROR;
use super::message::{OtlpLine, OtlpResource, OtlpSpan};
use crate::span::{SpanRecord, TraceId, hex, is_own_service};
use crate::text::printable;
use crate::trace::Trace;

/// Longer lines are refused, in bytes.
pub const MAX_LINE: usize = 16 << 20;
/// Further spans of a trace are dropped.
pub const MAX_SPANS_OF_TRACE: usize = 10_000;
/// What errors quote is cut off, in characters.
const MAX_SHOWN: usize = 200;

/// Why a line was not read.
#[derive(Debug, thiserror::Error)]
pub enum OtlpJsonError {
    /// The file cannot be read any further.
    #[error("{line}: reading failed")]
    Read {
        /// The number of the line, from 1.
        line: u64,
        /// The error of the file.
        source: io::Error,
    },
    /// The line has more than [`MAX_LINE`] bytes.
    #[error("{line}: longer than {} MiB", MAX_LINE >> 20)]
    TooLong {
        /// The number of the line, from 1.
        line: u64,
    },
    /// The line has no spans in OTLP's JSON.
    #[error("{line}: {field}{message}")]
    Invalid {
        /// The number of the line, from 1.
        line: u64,
        /// The path of the field, with a colon and a space; empty if it is none.
        field: String,
        /// What was found and expected.
        message: String,
    },
}

/// Spans of a file of OTLP's JSON, line by line. After a line that cannot be parsed it goes on with the next one; empty
/// lines are skipped.
#[derive(Debug)]
pub struct OtlpJsonReader<R> {
    input: R,
    line: u64,
    buffer: Vec<u8>,
    is_over: bool,
}

impl<R: BufRead> OtlpJsonReader<R> {
    /// A reader from the first line.
    pub fn new(input: R) -> OtlpJsonReader<R> {
        OtlpJsonReader {
            input,
            line: 0,
            buffer: Vec::new(),
            is_over: false,
        }
    }

    /// Reads a line into the buffer; false at the end.
    fn fill(&mut self) -> Result<bool, OtlpJsonError> {
        self.line += 1;
        let line = self.line;
        let failed = |source| OtlpJsonError::Read { line, source };
        self.buffer.clear();
        let limit = MAX_LINE as u64 + 1;
        let mut limited = (&mut self.input).take(limit);
        let length = limited
            .read_until(b'\n', &mut self.buffer)
            .map_err(failed)?;
        if length > MAX_LINE && !self.buffer.ends_with(b"\n") {
            self.buffer = Vec::new();
            self.skip_line().map_err(failed)?;
            return Err(OtlpJsonError::TooLong { line });
        }
        Ok(length > 0)
    }

    /// Skips the rest of a line.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let available = self.input.fill_buf()?;
            let end = available.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(available.len(), |end| end + 1);
            let is_over = end.is_some() || available.is_empty();
            self.input.consume(length);
            if is_over {
                return Ok(());
            }
        }
    }
}

impl<R: BufRead> Iterator for OtlpJsonReader<R> {
    type Item = Result<Vec<SpanRecord>, OtlpJsonError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            match self.fill() {
                Ok(true) if self.buffer.trim_ascii().is_empty() => {}
                Ok(true) => return Some(parse(self.line, self.buffer.trim_ascii_end())),
                Ok(false) => self.is_over = true,
                Err(error) => {
                    self.is_over = matches!(error, OtlpJsonError::Read { .. });
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

/// Reads all traces of a file, in the order of their first spans. A trace may be spread over lines; a span that occurs
/// again is dropped. `on_error` is called for each line that is not read.
pub fn read(input: impl BufRead, on_error: &mut dyn FnMut(OtlpJsonError)) -> Vec<Trace> {
    let mut traces: Vec<Trace> = Vec::new();
    let mut positions: HashMap<TraceId, usize> = HashMap::new();
    let mut spans_seen = HashSet::new();
    for spans in OtlpJsonReader::new(input) {
        let spans = match spans {
            Ok(spans) => spans,
            Err(error) => {
                on_error(error);
                continue;
            }
        };
        for span in spans {
            let id = span.trace;
            let position = *positions.entry(id).or_insert_with(|| {
                traces.push(Trace {
                    id,
                    spans: Vec::new(),
                });
                traces.len() - 1
            });
            let trace = traces.get_mut(position);
            let trace = trace.filter(|trace| trace.spans.len() < MAX_SPANS_OF_TRACE);
            if let Some(trace) = trace.filter(|_| spans_seen.insert((id, span.span))) {
                trace.spans.push(span);
            }
        }
    }
    traces
}

fn parse(line: u64, text: &[u8]) -> Result<Vec<SpanRecord>, OtlpJsonError> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let parsed: Result<OtlpLine, _> = serde_path_to_error::deserialize(&mut json);
    let parsed = match parsed {
        Ok(parsed) => json.end().map(|()| parsed).map_err(|error| (None, error)),
        Err(error) => Err((Some(error.path().to_string()), error.into_inner())),
    };
    let parsed = parsed.map_err(|(path, error)| {
        // Within a value that cannot be parsed the path ends with `?`.
        let path = path.map(|path| path.trim_end_matches(['.', '?']).to_owned());
        let field = path.filter(|path| !path.is_empty());
        let field = field.map_or_else(String::new, |path| {
            format!("{}: ", printable(&path, MAX_SHOWN))
        });
        OtlpJsonError::Invalid {
            line,
            field,
            message: message(&error),
        }
    })?;
    let mut records = Vec::new();
    for resource in parsed.resource_spans {
        let (service, version) = identity(&resource.resource);
        let spans = resource
            .scope_spans
            .into_iter()
            .flat_map(|scope| scope.spans);
        records.extend(spans.map(|span| from_otlp(service, version, span)));
    }
    Ok(records)
}

/// What the parser found, with the column in place of its line, which is always the first.
fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text
        .rsplit_once(" at line ")
        .map_or(&*text, |(text, _)| text);
    format!("{} (column {})", printable(text, MAX_SHOWN), error.column())
}

/// Name and version of the service.
fn identity(resource: &OtlpResource) -> (&str, &str) {
    let attribute = |key: &str| resource.attributes.get(key).map_or("", String::as_str);
    let name = attribute("service.name");
    let own = name.strip_prefix(SERVICE_PREFIX);
    // Another program's name may begin so, too.
    let service = own.filter(|own| is_own_service(own)).unwrap_or(name);
    (service, attribute("service.version"))
}

fn from_otlp(service: &str, version: &str, span: OtlpSpan) -> SpanRecord {
    // All of OTLP's times, until the year 2554, are valid.
    let time = |nanos: u64| Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or_default();
    let failed = span.status.filter(|status| status.code == STATUS_ERROR);
    let links = span.links.iter();
    let links = links.map(|link| format!("{}-{}", hex(&link.trace_id), hex(&link.span_id)));
    SpanRecord {
        trace: span.trace_id,
        span: span.span_id,
        parent: span.parent_span_id,
        service: service.to_owned(),
        version: version.to_owned(),
        name: span.name,
        start: time(span.start_time_unix_nano),
        end: time(span.end_time_unix_nano),
        attributes: span.attributes,
        error: failed.map(|status| match status.message {
            message if message.is_empty() => "failed".to_owned(),
            message => message,
        }),
        links: links.collect(),
    }
}
