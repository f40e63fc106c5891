//! Logs to the journal of systemd with structured fields, in its native protocol
//! (systemd.io/JOURNAL_NATIVE_PROTOCOL).
//!
//! Not by the crate tracing-journald, as it cannot add the ID of the trace, and waits for a journal that
//! does not read.

use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SendFlags;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Span, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::line::Fields;

const SOCKET: &str = "/run/systemd/journal/socket";
/// How long a line may wait for the journal before it is dropped.
const SEND_TIMEOUT: Duration = Duration::from_millis(200);
/// How long no further line waits after one that waited in vain. The event loop of a service waits with its
/// lines: a journal that is stopped may cost it one wait in this time, and not one per line.
const NO_WAIT: Duration = Duration::from_secs(10);
/// The longest value, in bytes. All fields together then fit into one datagram.
const MAX_VALUE: usize = 8 << 10;
/// The most fields of an event.
const MAX_FIELDS: usize = 16;

/// Sends each event to the journal.
pub(super) struct JournalLayer {
    socket: UnixDatagram,
    identifier: String,
    dropped: AtomicU64,
    wait: Mutex<WaitState>,
}

impl JournalLayer {
    /// A layer, if stderr is connected to the journal.
    pub(super) fn from_environment(service: &str) -> Option<JournalLayer> {
        let stream = std::env::var("JOURNAL_STREAM").ok()?;
        let stderr = rustix::fs::fstat(io::stderr()).ok()?;
        // Otherwise stderr was redirected after the variable had been set.
        if stream != format!("{}:{}", stderr.st_dev, stderr.st_ino) {
            return None;
        }
        JournalLayer::connect(Path::new(SOCKET), service).ok()
    }

    fn connect(path: &Path, service: &str) -> io::Result<JournalLayer> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(JournalLayer {
            socket,
            identifier: format!("polylet-{service}"),
            dropped: AtomicU64::new(0),
            wait: Mutex::default(),
        })
    }

    fn send(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut message = Datagram::default();
        message.put("MESSAGE", &fields.text());
        message.put("PRIORITY", priority(*event.metadata().level()));
        message.put("SYSLOG_IDENTIFIER", &self.identifier);
        message.put("TARGET", event.metadata().target());
        if let Some(traceparent) = crate::cause::traceparent(&Span::current())
            && let Some(trace) = traceparent.split('-').nth(1)
        {
            message.put("TRACE_ID", trace);
        }
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            message.put("POLYLET_DROPPED", &dropped.to_string());
        }
        event.record(&mut message);
        match self.send_datagram(&message.bytes) {
            Ok(_) => self.dropped.fetch_sub(dropped, Ordering::Relaxed),
            Err(_) => self.dropped.fetch_add(1, Ordering::Relaxed),
        };
    }

    fn send_datagram(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        let wait = || self.wait.lock().unwrap_or_else(PoisonError::into_inner);
        let may_wait = wait().may_wait(Instant::now());
        let flags = match may_wait {
            true => SendFlags::NOSIGNAL,
            false => SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        };
        let sent = rustix::net::send(&self.socket, bytes, flags);
        if may_wait && sent == Err(Errno::AGAIN) {
            wait().timed_out(Instant::now());
        }
        sent
    }
}

/// Whether a line may wait for the journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct WaitState {
    /// None waits before that.
    not_before: Option<Instant>,
}

impl WaitState {
    fn may_wait(self, now: Instant) -> bool {
        self.not_before.is_none_or(|moment| now >= moment)
    }

    /// A line has waited in vain.
    fn timed_out(&mut self, now: Instant) {
        self.not_before = now.checked_add(NO_WAIT);
    }
}

impl<S: Subscriber> Layer<S> for JournalLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.send(event);
    }
}

/// The priority in the sense of `syslog(3)`.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        _ => "7",
    }
}

/// An entry of the journal.
#[derive(Default)]
struct Datagram {
    bytes: Vec<u8>,
    fields: usize,
}

impl Datagram {
    fn put(&mut self, name: &str, value: &str) {
        let mut end = value.len().min(MAX_VALUE);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        let value = value.split_at(end).0;
        self.bytes.extend_from_slice(name.as_bytes());
        if value.contains('\n') {
            self.bytes.push(b'\n');
            self.bytes
                .extend_from_slice(&(value.len() as u64).to_le_bytes());
        } else {
            self.bytes.push(b'=');
        }
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(b'\n');
    }

    /// A field of the event under its name in the text log.
    fn put_field(&mut self, field: &Field, value: &str) {
        if field.name() == "message" || self.fields == MAX_FIELDS {
            return;
        }
        self.fields += 1;
        let mut name = "POLYLET_".to_owned();
        let letters = field.name().chars().map(|c| match c {
            c if c.is_ascii_alphanumeric() => c.to_ascii_uppercase(),
            _ => '_',
        });
        // The journal ignores longer names.
        name.extend(letters.take(48));
        self.put(&name, value);
    }
}

impl Visit for Datagram {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = write!(text, "{value:?}");
        self.put_field(field, &text);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_field(field, value);
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn received(log: impl FnOnce()) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let journal = UnixDatagram::bind(&path).unwrap();
        let layer = JournalLayer::connect(&path, "pleg").unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let mut buffer = vec![0; 1 << 17];
        let length = journal.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn fields_have_the_keys_of_the_text_log() {
        let text = received(|| {
            tracing::warn!(target: "polylet_pleg", pod_uid = "u-1", n = 3, error = %"a b", "it failed");
        });
        assert_eq!(
            text,
            "MESSAGE=it failed pod_uid=u-1 n=3 error=a b\nPRIORITY=4\nSYSLOG_IDENTIFIER=polylet-pleg\n\
             TARGET=polylet_pleg\nPOLYLET_POD_UID=u-1\nPOLYLET_N=3\nPOLYLET_ERROR=a b\n"
        );
    }

    #[test]
    fn values_with_newlines_cannot_add_fields() {
        let text = received(|| tracing::info!(error = "a\nUNIT=x", "failed"));
        let length = String::from_utf8_lossy(&8_u64.to_le_bytes()).into_owned();
        assert!(
            text.ends_with(&format!("POLYLET_ERROR\n{length}a\nUNIT=x\n")),
            "{text:?}"
        );
        assert!(
            !text.contains("\nMESSAGE=failed error=\"a\nUNIT"),
            "{text:?}"
        );
    }

    #[test]
    fn long_values_are_cut() {
        let long = "ä".repeat(1 << 20);
        assert!(received(|| tracing::info!(long, "x")).len() < 3 * MAX_VALUE);
    }

    #[test]
    fn a_journal_that_is_gone_costs_lines_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let journal = UnixDatagram::bind(&path).unwrap();
        let layer = JournalLayer::connect(&path, "pleg").unwrap();
        drop(journal);
        let registry = tracing_subscriber::registry();
        tracing::subscriber::with_default(registry.with(layer), || tracing::info!("lost"));
    }

    #[test]
    fn a_journal_that_does_not_read_is_waited_for_once() {
        const LINES: u64 = 50;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let _journal = UnixDatagram::bind(&path).unwrap();
        let layer = JournalLayer::connect(&path, "pleg").unwrap();
        while rustix::net::send(&layer.socket, b"x", SendFlags::DONTWAIT).is_ok() {}
        let layer = std::sync::Arc::new(layer);
        let registry = tracing_subscriber::registry().with(SharedLayer(layer.clone()));
        tracing::subscriber::with_default(registry, || {
            tracing::info!("first");
            let waited = *layer.wait.lock().unwrap();
            assert!(waited.not_before.is_some());
            for _ in 1..LINES {
                tracing::info!("further");
            }
            // A second wait would have moved it.
            assert_eq!(*layer.wait.lock().unwrap(), waited);
        });
        assert_eq!(layer.dropped.load(Ordering::Relaxed), LINES);
    }

    /// A layer that the test can look into.
    struct SharedLayer(std::sync::Arc<JournalLayer>);

    impl<S: Subscriber> Layer<S> for SharedLayer {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.send(event);
        }
    }

    #[test]
    fn lines_wait_again_after_a_while() {
        let now = Instant::now();
        let mut state = WaitState::default();
        assert!(state.may_wait(now));
        state.timed_out(now);
        for (after, expected) in [
            (Duration::ZERO, false),
            (NO_WAIT - Duration::from_millis(1), false),
            (NO_WAIT, true),
        ] {
            assert_eq!(state.may_wait(now + after), expected, "{after:?}");
        }
    }
}
