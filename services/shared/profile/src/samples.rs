//! Samples that were taken, on their way to a profile.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::buffer::Record;
use crate::periods::{CPU_PERIOD, HEAP_PERIOD, heap_values};
use crate::pprof::{ProfileHeader, ValueKind, WeightedStack, build};
use crate::recorder::Recorded;
use crate::symbols;

/// What was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleKind {
    Cpu,
    Heap,
}

/// The samples of a profile. Their addresses have no names yet.
#[derive(Debug)]
pub struct ProfileSamples {
    kind: SampleKind,
    recorded: Recorded,
}

impl ProfileSamples {
    pub(crate) fn new(kind: SampleKind, recorded: Option<Recorded>) -> Self {
        let recorded = recorded.unwrap_or_else(|| Recorded {
            started_at: SystemTime::now(),
            duration: Duration::ZERO,
            records: Vec::new(),
            dropped: 0,
        });
        Self { kind, recorded }
    }

    /// The number of samples for which there was no space.
    pub fn dropped(&self) -> usize {
        self.recorded.dropped
    }

    /// The profile: a gzip'd message of pprof's format, with the names of all functions. Takes up to seconds of
    /// processor time: not for a thread that has other work.
    ///
    /// # Errors
    /// None in practice: it is written to memory.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let records = &self.recorded.records;
        let frames = symbols::resolve(records.iter().flat_map(|record| &record.frames).copied());
        let program = std::env::current_exe().unwrap_or_default();
        let header = ProfileHeader {
            program: program.display().to_string(),
            started_at: self
                .recorded
                .started_at
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
            duration: self.recorded.duration,
            values: self.kind.values(),
            period_of: self.kind.period_of(),
            period: self.kind.period(),
            comments: match self.recorded.dropped {
                0 => Vec::new(),
                dropped => vec![format!("{dropped} samples were dropped for lack of space")],
            },
        };
        let stacks = records
            .iter()
            .map(|record| self.kind.stack(record, &frames));
        let message = build(&header, stacks, &frames).encode_to_vec();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&message)?;
        encoder.finish()
    }
}

impl SampleKind {
    fn values(self) -> Vec<ValueKind> {
        let value = |name, unit| ValueKind { name, unit };
        match self {
            Self::Cpu => vec![value("samples", "count"), value("cpu", "nanoseconds")],
            Self::Heap => vec![
                value("alloc_objects", "count"),
                value("alloc_space", "bytes"),
                value("inuse_objects", "count"),
                value("inuse_space", "bytes"),
            ],
        }
    }

    fn period_of(self) -> ValueKind {
        let (name, unit) = match self {
            Self::Cpu => ("cpu", "nanoseconds"),
            Self::Heap => ("space", "bytes"),
        };
        ValueKind { name, unit }
    }

    fn period(self) -> i64 {
        match self {
            Self::Cpu => i64::from(CPU_PERIOD.subsec_nanos()),
            Self::Heap => i64::try_from(HEAP_PERIOD).unwrap_or(i64::MAX),
        }
    }

    fn stack<'a>(
        self,
        record: &'a Record,
        frames: &BTreeMap<usize, Vec<symbols::SourceFrame>>,
    ) -> WeightedStack<'a> {
        match self {
            Self::Cpu => WeightedStack {
                frames: &record.frames,
                values: vec![1, self.period()],
            },
            Self::Heap => WeightedStack {
                frames: without_allocator(&record.frames, frames),
                values: heap_values(record.fields),
            },
        }
    }
}

/// The stack of an allocation from the function on that asked for it, if its functions are known.
fn without_allocator<'a>(
    addresses: &'a [usize],
    frames: &BTreeMap<usize, Vec<symbols::SourceFrame>>,
) -> &'a [usize] {
    let is_allocator = |address: &usize| {
        let found = frames.get(address).map(Vec::as_slice).unwrap_or_default();
        !found.is_empty()
            && found
                .iter()
                .all(|frame| symbols::is_allocator(&frame.function))
    };
    let first = addresses.iter().position(|address| !is_allocator(address));
    first
        .and_then(|first| addresses.get(first..))
        .unwrap_or(addresses)
}
