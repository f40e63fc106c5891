//! `polylet trace record`: traces into a file, which appears when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use polylet_kit::Config;
use polylet_trace::Trace;
use polylet_trace::format::otlp_json;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use super::live::LiveTraces;
use crate::args::OutputFormat;
use crate::args::trace::RecordArgs;
use crate::client::ClientError;
use crate::show;

/// Records traces until a limit or a signal.
pub(super) async fn record(
    config: &Config,
    args: RecordArgs,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let signals = |kind| signal(kind).map_err(ClientError::Runtime);
    let mut interrupt = signals(SignalKind::interrupt())?;
    let mut terminate = signals(SignalKind::terminate())?;
    let mut traces = LiveTraces::start(config, args.filter.filter()).await?;
    let failed = |source| ClientError::Write {
        path: args.file.clone(),
        source,
    };
    let mut recording = Recording::create(&args.file).map_err(failed)?;
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    if output == OutputFormat::Text {
        eprintln!("recording; Ctrl-C ends it");
    }
    let (mut recorded, mut missed) = (0_u64, 0_u64);
    while args.starts.is_none_or(|limit| recorded < limit) {
        let next = tokio::select! {
            next = traces.next() => next,
            () = end(deadline, &mut interrupt, &mut terminate) => break,
        };
        match next {
            Ok((_, Some(trace))) => {
                recording.write(trace).map_err(failed)?;
                recorded += 1;
            }
            Ok((_, None)) => missed += 1,
            // What was recorded counts.
            Err(error) if recorded > 0 => {
                eprintln!("polylet: recording ended: {}", polylet_kit::report(&error));
                break;
            }
            Err(error) => return Err(error),
        }
    }
    if recorded == 0 {
        let file = args.file.display();
        let message = format!("no trace ended meanwhile; {file} was not written");
        return Err(ClientError::NotFound(message));
    }
    recording.finish().map_err(failed)?;
    print_result(&args.file, recorded, missed, output);
    Ok(())
}

/// Resolves at the deadline or a signal.
async fn end(deadline: Option<Instant>, interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

fn print_result(file: &Path, recorded: u64, missed: u64, output: OutputFormat) {
    let file = file.display().to_string();
    if output == OutputFormat::Json {
        show::json(&json!({ "file": file, "traces": recorded, "missed": missed }));
        return;
    }
    let missed = match missed {
        0 => String::new(),
        missed => format!("; the spans of {missed} more were dropped before"),
    };
    super::print(&format!("{recorded} traces in {file}{missed}\n"));
}

/// A file that is written aside, and removed unless it is finished.
struct Recording {
    path: PathBuf,
    aside: PathBuf,
    file: Option<BufWriter<File>>,
}

impl Recording {
    fn create(path: &Path) -> io::Result<Recording> {
        let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.new", std::process::id()));
        let aside = path.with_file_name(hidden);
        let mut options = File::options();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&aside)?;
        Ok(Recording {
            path: path.to_owned(),
            aside,
            file: Some(BufWriter::new(file)),
        })
    }

    fn write(&mut self, trace: Trace) -> io::Result<()> {
        match &mut self.file {
            Some(file) => otlp_json::write(&[trace], file),
            None => Ok(()),
        }
    }

    /// Gives the file its name, once it is on the disk.
    fn finish(mut self) -> io::Result<()> {
        if let Some(mut file) = self.file.take() {
            // The file is removed if that fails.
            let written = file.flush().and_then(|()| file.get_ref().sync_all());
            let renamed = written.and_then(|()| fs::rename(&self.aside, &self.path));
            if renamed.is_err() {
                let _ = fs::remove_file(&self.aside);
            }
            renamed?;
        }
        let directory = self
            .path
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _ = fs::remove_file(&self.aside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let name =
            |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        entries.map(name).collect()
    }

    #[test]
    fn the_file_appears_at_the_end_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("traces.jsonl");
        let trace = Trace {
            id: [1; 16],
            spans: Vec::new(),
        };
        let mut recording = Recording::create(&path).unwrap();
        recording.write(trace.clone()).unwrap();
        assert!(!path.exists());
        drop(recording);
        assert_eq!(files(directory.path()), [""; 0]);
        fs::write(&path, "before").unwrap();
        let mut recording = Recording::create(&path).unwrap();
        recording.write(trace).unwrap();
        recording.finish().unwrap();
        assert_eq!(files(directory.path()), ["traces.jsonl"]);
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "{\"resourceSpans\":[]}\n"
        );
        let error = Recording::create(directory.path()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }
}
