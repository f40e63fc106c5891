//! Samples of allocations, by the allocator of the program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::ProfileError;
use crate::periods::HEAP_PERIOD;
use crate::recorder::{Recorder, Recording};
use crate::samples::{ProfileSamples, SampleKind};
use crate::stack::Stack;

/// The field of a record that is set once the allocation is freed; the one before is its size.
const FREED: usize = 1;

static RECORDER: Recorder = Recorder::new();
/// Bytes until the next sample.
static REMAINING: AtomicI64 = AtomicI64::new(0);
/// State of the random numbers.
static RANDOM: AtomicU64 = AtomicU64::new(0x9E37_79B9_7F4A_7C15);
/// Whether an allocation was seen: the program has this allocator.
static SEEN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread records a sample: what that allocates is none.
    static IS_RECORDING: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator, which records samples while a [`HeapSampling`] exists.
///
/// ```
/// use polylet_profile::SampledAllocator;
/// #[global_allocator]
/// static ALLOCATOR: SampledAllocator = SampledAllocator;
/// # fn main() {}
/// ```
#[derive(Debug)]
pub struct SampledAllocator;

#[allow(unsafe_code, reason = "allocators are unsafe by their trait")]
// SAFETY: each call is passed on to the system's allocator as it is, and its result returned.
unsafe impl GlobalAlloc for SampledAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let address = unsafe { System.alloc(layout) };
        if RECORDER.is_active() {
            allocated(address as usize, layout.size());
        }
        address
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let address = unsafe { System.alloc_zeroed(layout) };
        if RECORDER.is_active() {
            allocated(address as usize, layout.size());
        }
        address
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // Before another thread may have the address.
        if RECORDER.is_active() {
            freed(address as usize);
        }
        // SAFETY: the caller's.
        unsafe { System.dealloc(address, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if RECORDER.is_active() {
            freed(address as usize);
        }
        // SAFETY: the caller's.
        let address = unsafe { System.realloc(address, layout, size) };
        if RECORDER.is_active() {
            allocated(address as usize, size);
        }
        address
    }
}

/// Samples allocations until it is finished or dropped. What was allocated before is not in the profile.
#[derive(Debug)]
pub struct HeapSampling {
    recording: Recording,
}

impl HeapSampling {
    /// Starts to sample.
    ///
    /// # Errors
    /// When another one exists, or the program has another allocator.
    pub fn start() -> Result<Self, ProfileError> {
        SEEN.store(false, Ordering::SeqCst);
        let recording = RECORDER.start()?;
        REMAINING.store(next_distance(), Ordering::SeqCst);
        drop(std::hint::black_box(Box::new(0_u8)));
        if !SEEN.load(Ordering::SeqCst) {
            return Err(ProfileError::NotSampled);
        }
        Ok(Self { recording })
    }

    /// Stops, and returns the samples.
    pub fn finish(self) -> ProfileSamples {
        ProfileSamples::new(SampleKind::Heap, Some(self.recording.finish()))
    }
}

#[cold]
fn allocated(address: usize, size: usize) {
    SEEN.store(true, Ordering::Relaxed);
    let bytes = i64::try_from(size).unwrap_or(i64::MAX);
    let remaining = REMAINING.fetch_sub(bytes, Ordering::Relaxed);
    // Of several threads, the one that crosses the border takes the sample, and sets the next border.
    let is_sample = remaining > 0 && remaining <= bytes;
    if !is_sample || address == 0 {
        return;
    }
    REMAINING.store(next_distance(), Ordering::Relaxed);
    let is_recording = |flag: &Cell<bool>| flag.replace(true);
    // A thread that ends has no flag any more, and records nothing.
    if IS_RECORDING.try_with(is_recording).unwrap_or(true) {
        return;
    }
    RECORDER.record(|buffer| {
        let stack = Stack::of_caller();
        // Freed, unless its address can be remembered.
        let Some(position) = buffer.push([size, 1], stack.frames()) else {
            return;
        };
        if buffer.live.insert(address, position) {
            buffer.set_field(position, FREED, 0);
        }
    });
    let _ = IS_RECORDING.try_with(|flag| flag.set(false));
}

#[cold]
fn freed(address: usize) {
    RECORDER.record(|buffer| {
        if let Some(position) = buffer.live.remove(address) {
            buffer.set_field(position, FREED, 1);
        }
    });
}

/// A random number of bytes, so that each byte is sampled with the same probability.
fn next_distance() -> i64 {
    let random = RANDOM.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    distance(mixed(random))
}

/// Random bits out of a counter (splitmix64).
fn mixed(counter: u64) -> u64 {
    let mixed = (counter ^ (counter >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "53 bits of a random number, and a distance that is far below 2^53"
)]
fn distance(random: u64) -> i64 {
    // In (0, 1]: the logarithm exists.
    let uniform = ((random >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
    (-uniform.ln() * HEAP_PERIOD as f64) as i64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_have_the_period_as_their_mean() {
        let count = 100_000;
        let sum: i64 = (0..count).map(|number| distance(mixed(number))).sum();
        let mean = sum / i64::try_from(count).unwrap();
        let period = i64::try_from(HEAP_PERIOD).unwrap();
        assert!((mean - period).abs() < period / 50, "{mean}");
        assert_eq!(distance(u64::MAX), 1);
        assert!(distance(0) > period * 30);
    }

    #[test]
    fn a_program_with_another_allocator_has_no_samples() {
        let refused = HeapSampling::start();
        assert!(
            matches!(refused, Err(ProfileError::NotSampled)),
            "{refused:?}"
        );
        // And the recorder is free again.
        let refused = HeapSampling::start();
        assert!(
            matches!(refused, Err(ProfileError::NotSampled)),
            "{refused:?}"
        );
    }
}
