//! What signal handlers and allocations record into while a profile is taken, and nothing at rest.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::ProfileError;
use crate::buffer::{Record, RecordBuffer};

/// The recorder of one kind of samples in this process.
#[derive(Debug)]
pub(crate) struct Recorder {
    in_use: AtomicBool,
    /// Null at rest.
    buffer: AtomicPtr<RecordBuffer>,
    /// Those who may use the buffer at the moment.
    writers: AtomicUsize,
}

/// Takes records until it is dropped.
#[derive(Debug)]
pub(crate) struct Recording {
    recorder: &'static Recorder,
    buffer: Arc<RecordBuffer>,
    started_at: SystemTime,
    start: Instant,
}

/// Records, and when they were taken.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) started_at: SystemTime,
    pub(crate) duration: Duration,
    pub(crate) records: Vec<Record>,
    pub(crate) dropped: usize,
}

impl Recorder {
    pub(crate) const fn new() -> Self {
        Self {
            in_use: AtomicBool::new(false),
            buffer: AtomicPtr::new(ptr::null_mut()),
            writers: AtomicUsize::new(0),
        }
    }

    /// Takes records from now on.
    ///
    /// # Errors
    /// When it does already.
    pub(crate) fn start(&'static self) -> Result<Recording, ProfileError> {
        if self.in_use.swap(true, Ordering::SeqCst) {
            return Err(ProfileError::Busy);
        }
        let buffer = Arc::new(RecordBuffer::new());
        let address = Arc::as_ptr(&buffer).cast_mut();
        let (started_at, start) = (SystemTime::now(), Instant::now());
        self.buffer.store(address, Ordering::SeqCst);
        Ok(Recording {
            recorder: self,
            buffer,
            started_at,
            start,
        })
    }

    /// Whether records are taken. Cheap; the answer may be outdated at once.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        !self.buffer.load(Ordering::Relaxed).is_null()
    }

    /// Calls `record` with the buffer while records are taken. Neither waits nor allocates.
    pub(crate) fn record(&self, record: impl FnOnce(&RecordBuffer)) {
        self.writers.fetch_add(1, Ordering::SeqCst);
        let buffer = self.buffer.load(Ordering::SeqCst);
        #[allow(unsafe_code, reason = "a signal's handler cannot take a lock")]
        // SAFETY: not null means that a `Recording` has the buffer, which removes the address and waits for all
        // writers before it is freed; this one is counted since before the address was read.
        let buffer = unsafe { buffer.as_ref() };
        if let Some(buffer) = buffer {
            record(buffer);
        }
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }

    fn stop(&self) {
        self.buffer.store(ptr::null_mut(), Ordering::SeqCst);
        // Each writer has some microseconds of work.
        while self.writers.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}

impl Recording {
    /// Stops, and returns what was recorded.
    pub(crate) fn finish(self) -> Recorded {
        let duration = self.start.elapsed();
        self.recorder.stop();
        let (records, dropped) = self.buffer.read();
        Recorded {
            started_at: self.started_at,
            duration,
            records,
            dropped,
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.recorder.stop();
        self.recorder.in_use.store(false, Ordering::SeqCst);
    }
}
