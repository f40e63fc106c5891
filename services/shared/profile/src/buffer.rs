//! Records of samples, which any number of threads and signal handlers write without waiting.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::live::LiveTable;

/// Words of all records: 4 MiB, of which only what is written takes memory.
const CAPACITY: usize = 4 * 1024 * 1024 / size_of::<usize>();

/// Numbers of a sample beside its frames.
pub(crate) const FIELDS: usize = 2;
/// Words of a record beside its frames: their number, and the fields.
const HEADER: usize = 1 + FIELDS;

/// The records one after the other: the number of frames, the fields, the frames.
pub(crate) struct RecordBuffer {
    words: Box<[AtomicUsize]>,
    next: AtomicUsize,
    dropped: AtomicUsize,
    /// The records of allocations that were not freed.
    pub(crate) live: LiveTable,
}

impl std::fmt::Debug for RecordBuffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RecordBuffer")
            .finish_non_exhaustive()
    }
}

/// A sample as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) fields: [usize; FIELDS],
    pub(crate) frames: Vec<usize>,
}

impl RecordBuffer {
    pub(crate) fn new() -> Self {
        Self::with_capacity(CAPACITY)
    }

    fn with_capacity(words: usize) -> Self {
        Self {
            words: std::iter::repeat_with(|| AtomicUsize::new(0))
                .take(words)
                .collect(),
            next: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
            live: LiveTable::new(),
        }
    }

    /// Adds a record and returns its position; `None` if the buffer is full, which is counted.
    pub(crate) fn push(&self, fields: [usize; FIELDS], frames: &[usize]) -> Option<usize> {
        let length = HEADER + frames.len();
        let start = self.next.load(Ordering::Relaxed);
        // Once it is full the position no longer grows, so that it cannot overflow.
        let is_full = start.saturating_add(length) > self.words.len();
        let start = if is_full {
            start
        } else {
            self.next.fetch_add(length, Ordering::Relaxed)
        };
        let Some(record) = self.words.get(start..start.saturating_add(length)) else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let (count, rest) = record.split_first()?;
        for (word, value) in rest.iter().zip(fields.iter().chain(frames)) {
            word.store(*value, Ordering::Relaxed);
        }
        // Last: a record without a number of frames does not count.
        count.store(frames.len(), Ordering::Release);
        Some(start)
    }

    /// Changes a field of a record.
    pub(crate) fn set_field(&self, position: usize, field: usize, value: usize) {
        if let Some(word) = self.words.get(position.saturating_add(1 + field)) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// All records, and the number of those for which there was no space. Nobody may write meanwhile.
    pub(crate) fn read(&self) -> (Vec<Record>, usize) {
        let mut records = Vec::new();
        let mut at = 0_usize;
        while let Some(header) = self.words.get(at..at.saturating_add(HEADER)) {
            let mut header = header.iter().map(|word| word.load(Ordering::Acquire));
            let count = header.next().unwrap_or_default();
            // The first one that was not written is the end.
            if count == 0 {
                break;
            }
            let mut fields = [0; FIELDS];
            for (field, value) in fields.iter_mut().zip(header) {
                *field = value;
            }
            let frames = at + HEADER..at + HEADER + count;
            let frames = self.words.get(frames).unwrap_or_default();
            let frames = frames.iter().map(|word| word.load(Ordering::Relaxed));
            records.push(Record {
                fields,
                frames: frames.collect(),
            });
            at += HEADER + count;
        }
        (records, self.dropped.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let buffer = RecordBuffer::with_capacity(11);
        assert_eq!(buffer.push([1, 2], &[10, 11]), Some(0));
        assert_eq!(buffer.push([3, 4], &[12]), Some(5));
        buffer.set_field(5, 1, 7);
        // There are two words left.
        for _ in 0..3 {
            assert_eq!(buffer.push([5, 6], &[13]), None);
        }
        let record = |fields, frames: &[usize]| Record {
            fields,
            frames: frames.to_vec(),
        };
        let expected = vec![record([1, 2], &[10, 11]), record([3, 7], &[12])];
        assert_eq!(buffer.read(), (expected, 3));
    }

    #[test]
    fn threads_do_not_disturb_each_other() {
        let buffer = RecordBuffer::with_capacity(40_000);
        std::thread::scope(|scope| {
            for thread in 1..=4 {
                let buffer = &buffer;
                scope.spawn(move || {
                    for number in 0..1000 {
                        buffer.push([thread, number], &vec![thread; thread]);
                    }
                });
            }
        });
        let (records, dropped) = buffer.read();
        assert_eq!((records.len(), dropped), (4000, 0));
        for record in &records {
            let thread = record.fields[0];
            assert_eq!(record.frames, vec![thread; thread]);
        }
        for thread in 1..=4 {
            let numbers = records.iter().filter(|record| record.fields[0] == thread);
            assert!(numbers.map(|record| record.fields[1]).eq(0..1000));
        }
    }
}
