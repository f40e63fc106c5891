//! The stack of a thread stays as large in memory as its deepest call was, mostly one at the start.

/// Returns the memory below the present end of this thread's stack to the system. Takes some microseconds, the first
/// time in a thread a tenth of a millisecond.
pub(super) fn trim() {
    #[cfg(target_env = "gnu")]
    gnu::trim();
}

#[cfg(target_env = "gnu")]
mod gnu {
    use std::cell::OnceCell;
    use std::ffi::c_void;
    use std::mem::MaybeUninit;

    const PAGE: usize = 4096;
    /// Below the frame of the function that trims: the frames of what it calls, and the 128 bytes that a function may
    /// use beyond its frame.
    const IN_USE: usize = 2 * PAGE;

    thread_local! {
        /// The lowest address that the stack of this thread can have; `None` if it is not known.
        static LOWEST: OnceCell<Option<usize>> = const { OnceCell::new() };
    }

    #[inline(never)]
    pub(super) fn trim() {
        let frame = 0_u8;
        let end = (std::ptr::from_ref(&frame).addr() - IN_USE) / PAGE * PAGE;
        let Some(start) = LOWEST.with(|lowest| *lowest.get_or_init(lowest_address)) else {
            return;
        };
        let Some(length) = end.checked_sub(start) else {
            return;
        };
        #[allow(
            unsafe_code,
            reason = "a call of the system with the unused part of the own stack"
        )]
        // SAFETY: the range is below all frames of this thread and inside of its stack, of which nobody else uses
        // anything. A later call finds zeros there, and expects nothing. Of the main thread's stack, which grows as
        // it is used, the lower part is not mapped: that is the error that is ignored.
        unsafe {
            libc::madvise(
                std::ptr::without_provenance_mut::<c_void>(start),
                length,
                libc::MADV_DONTNEED,
            );
        }
    }

    fn lowest_address() -> Option<usize> {
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let mut address = std::ptr::null_mut();
        let mut size = 0;
        #[allow(unsafe_code, reason = "calls of the C library about the own thread")]
        // SAFETY: the attributes are initialised by the first call if it succeeds, and destroyed once; the others are
        // valid places for results.
        let failed = unsafe {
            if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
                return None;
            }
            let failed =
                libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut address, &raw mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            failed
        };
        (failed == 0).then(|| address.addr().next_multiple_of(PAGE))
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use procfs::process::Process;

    /// Uses this many KiB of stack.
    #[inline(never)]
    fn deep(kib: usize) -> u8 {
        let used = std::hint::black_box([1_u8; 1024]);
        let below = if kib > 1 { deep(kib - 1) } else { 0 };
        used[kib % 1024].wrapping_add(below)
    }

    /// Resident KiB of the mapping with this address.
    fn resident(address: usize) -> u64 {
        let maps = Process::myself().unwrap().smaps().unwrap();
        let contains = |map: &&procfs::process::MemoryMap| {
            (map.address.0..map.address.1).contains(&(address as u64))
        };
        let map = maps.iter().find(contains).unwrap();
        map.extension.map["Rss"] / 1024
    }

    #[test]
    fn what_a_deep_call_used_is_returned() {
        let kept = std::hint::black_box([7_u8; 3000]);
        assert_ne!(deep(900), 7);
        let address = std::ptr::from_ref(&kept).addr();
        let before = resident(address);
        for _ in 0..3 {
            super::trim();
        }
        let after = resident(address);
        assert!(
            before > 900 && after + 700 < before,
            "{before} KiB, then {after}"
        );
        assert_eq!(kept, [7; 3000]);
        assert_ne!(deep(900), 7, "the stack is used as before");
    }
}
