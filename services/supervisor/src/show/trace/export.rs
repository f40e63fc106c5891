//! `polylet trace export`.

use std::io::{self, Write};

use polylet_trace::Trace;
use polylet_trace::format::{chrome, folded, otlp_json, perfetto, svg};

use super::new_file::NewFile;
use super::source::TraceInput;
use crate::args::trace::{ExportArgs, ExportFormat};
use crate::client::ClientError;

/// Writes a trace, or all that match the filters, to a file or the standard output.
pub(super) async fn export(source: &TraceInput<'_>, args: &ExportArgs) -> Result<(), ClientError> {
    let (traces, dropped) = match &args.pod {
        Some(pod) => (vec![source.find(pod).await?.0], 0),
        None => source.traces(&args.select.filter.filter()).await?,
    };
    if dropped > 0 {
        eprintln!("polylet: the spans of {dropped} more traces that match were dropped");
    }
    if args.format == ExportFormat::Svg && traces.len() > 1 {
        let count = traces.len();
        let message = format!("svg draws one trace, and {count} match; name a pod or a trace ID");
        return Err(ClientError::Usage(message));
    }
    let Some(path) = &args.to else {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let written = write(args.format, &traces, &mut out).and_then(|()| out.flush());
        return match written {
            // The reader has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(source) => Err(ClientError::Write {
                path: "/dev/stdout".into(),
                source,
            }),
            Ok(()) => Ok(()),
        };
    };
    let mut file = NewFile::create(path)?;
    file.write(|to| write(args.format, &traces, to))?;
    file.finish()
}

fn write(format: ExportFormat, traces: &[Trace], to: &mut dyn Write) -> io::Result<()> {
    match format {
        ExportFormat::OtlpJson => otlp_json::write(traces, to),
        ExportFormat::Perfetto => perfetto::write(traces, to),
        ExportFormat::Chrome => chrome::write(traces, to),
        ExportFormat::Folded => folded::write(traces, to),
        ExportFormat::Svg => traces.iter().try_for_each(|trace| svg::write(trace, to)),
    }
}
