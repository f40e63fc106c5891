//! Chrome's trace event format, which most viewers of traces read. Services are processes, lanes are their threads.

use std::io::{self, Write};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::timeline::{Timeline, TimelineSlice};
use crate::trace::Trace;

/// Details of an event, in their order.
struct Details<'a>(&'a [(String, String)]);

impl Serialize for Details<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (key, value) in self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// An event. Times are microseconds since the first moment.
#[derive(Serialize)]
struct ChromeEvent<'a> {
    ph: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cat: &'a str,
    pid: usize,
    tid: usize,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    /// `e`: the flow ends at the slice around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Details<'a>>,
}

/// Writes events of spans that nest on each thread, a flow for each cause, and the critical paths as a process.
///
/// # Errors
/// Writing failed.
pub fn write(traces: &[Trace], to: &mut dyn Write) -> io::Result<()> {
    let timeline = Timeline::new(traces);
    let mut events = Events {
        to,
        is_first: true,
        start: timeline.start,
    };
    events
        .to
        .write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
    for (pid, process) in timeline.processes.iter().enumerate() {
        events.name("process_name", pid, 0, &process.name)?;
        for (tid, lane) in process.lanes.iter().enumerate() {
            let name = format!("{} {}", process.name, tid + 1);
            events.name("thread_name", pid, tid, &name)?;
            for slice in lane {
                events.slice(pid, tid, slice, &timeline)?;
            }
        }
    }
    events.to.write_all(b"\n]}\n")
}

struct Events<'a> {
    to: &'a mut dyn Write,
    is_first: bool,
    start: i128,
}

impl Events<'_> {
    fn event(&mut self, event: &ChromeEvent<'_>) -> io::Result<()> {
        if !std::mem::take(&mut self.is_first) {
            self.to.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut *self.to, event).map_err(Into::into)
    }

    fn name(&mut self, what: &'static str, pid: usize, tid: usize, name: &str) -> io::Result<()> {
        let details = [("name".to_owned(), name.to_owned())];
        self.event(&ChromeEvent {
            ph: "M",
            name: what,
            cat: "",
            pid,
            tid,
            ts: 0.0,
            dur: None,
            id: None,
            bp: None,
            args: Some(Details(&details)),
        })
    }

    fn slice(
        &mut self,
        pid: usize,
        tid: usize,
        slice: &TimelineSlice,
        timeline: &Timeline,
    ) -> io::Result<()> {
        let start = self.start;
        let micros = |time: i128| (time - start) as f64 / 1000.0;
        self.event(&ChromeEvent {
            ph: "X",
            name: &slice.name,
            cat: slice.category,
            pid,
            tid,
            ts: micros(slice.start),
            dur: Some((slice.end - slice.start) as f64 / 1000.0),
            id: None,
            bp: None,
            args: Some(&slice.details)
                .filter(|details| !details.is_empty())
                .map(|details| Details(details)),
        })?;
        let ends = [("s", &slice.flows_out), ("f", &slice.flows_in)];
        for (ph, flows) in ends {
            for id in flows {
                let Some(flow) = timeline.flows.get(*id) else {
                    continue;
                };
                let is_end = ph == "f";
                self.event(&ChromeEvent {
                    ph,
                    name: "cause",
                    cat: "cause",
                    pid,
                    tid,
                    ts: micros(if is_end { flow.arrived } else { flow.left }),
                    dur: None,
                    id: Some(*id),
                    bp: is_end.then_some("e"),
                    args: None,
                })?;
            }
        }
        Ok(())
    }
}
