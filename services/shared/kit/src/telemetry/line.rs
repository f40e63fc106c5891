use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats each event as one line: time, level, service, message, fields. Eleven processes write to one
/// terminal, so each line names its service, and control characters are escaped.
pub(super) struct OneLine {
    service: String,
}

impl OneLine {
    pub(super) fn new(service: &str) -> OneLine {
        OneLine {
            service: service.to_owned(),
        }
    }
}

impl<S, N> FormatEvent<S, N> for OneLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (now, level) = (jiff::Timestamp::now(), event.metadata().level());
        write!(writer, "{now:.3} {level:>5} {}: ", self.service)?;
        writer.write_str(&fields.message)?;
        writer.write_str(&fields.rest)?;
        writer.write_char('\n')
    }
}

/// The fields of an event as text.
#[derive(Default)]
pub(super) struct Fields {
    message: String,
    rest: String,
}

impl Fields {
    /// The message, followed by the other fields.
    pub(super) fn text(&self) -> String {
        format!("{}{}", self.message, self.rest)
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing into a String cannot fail.
        let _ = match field.name() {
            "message" => write!(Escaped(&mut self.message), "{value:?}"),
            name => write!(Escaped(&mut self.rest), " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let plain = !value.is_empty()
            && value
                .chars()
                .all(|c| c.is_alphanumeric() || "-_./:@%+,".contains(c));
        let _ = match field.name() {
            "message" => write!(Escaped(&mut self.message), "{value}"),
            name if plain => write!(self.rest, " {name}={value}"),
            name => write!(self.rest, " {name}={value:?}"),
        };
    }
}

/// Escapes control characters.
struct Escaped<'a>(&'a mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if c.is_control() {
                self.0.extend(c.escape_default());
            } else {
                self.0.push(c);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn one_line_per_event() {
        let sink = Sink::default();
        let writer = sink.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(move || writer.clone())
            .event_format(OneLine::new("pleg"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::info!(pod = "a b", n = 3, path = "/x", error = %"two\nlines", "it\nhappened");
        });
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        let (_, rest) = text.split_once(' ').unwrap();
        assert_eq!(
            rest,
            " INFO pleg: it\\nhappened pod=\"a b\" n=3 path=/x error=two\\nlines\n"
        );
    }
}
