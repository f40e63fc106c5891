//! The stack of the running thread, as addresses.

use std::ffi::c_void;

/// Frames of a stack at most; the outermost ones of a deeper stack are left out.
pub(crate) const MAX_FRAMES: usize = 64;
/// Frames of the recorder itself at most, which precede the first one that is wanted.
const MAX_OWN_FRAMES: usize = 24;

/// A stack, innermost frame first. It is on the stack itself: nothing is allocated.
pub(crate) struct Stack {
    frames: [usize; MAX_FRAMES],
    length: usize,
}

impl Stack {
    /// The stack below the interrupted instruction, by its address. Without it, if the unwinder does not get
    /// there, the instruction alone.
    pub(crate) fn interrupted_at(pc: usize) -> Self {
        let mut stack = Self::below(|ip| ip == pc);
        if stack.length == 0 {
            stack.push(pc);
        }
        stack
    }

    /// The stack of the caller, and some frames of this crate.
    pub(crate) fn of_caller() -> Self {
        Self::below(|_| true)
    }

    /// The frames from the first one on that `is_first`.
    fn below(is_first: impl Fn(usize) -> bool) -> Self {
        let mut stack = Self {
            frames: [0; MAX_FRAMES],
            length: 0,
        };
        let mut skipped = 0;
        let visit = |frame: &backtrace::Frame| {
            let ip = frame.ip() as usize;
            if stack.length > 0 || is_first(ip) {
                stack.push(ip)
            } else {
                skipped += 1;
                skipped < MAX_OWN_FRAMES
            }
        };
        #[allow(
            unsafe_code,
            reason = "the other function takes a lock, and this runs in a signal's handler"
        )]
        // SAFETY: no symbol is resolved here, which is what the lock protects. The unwinder reads the tables of the
        // program and its libraries, of which none is loaded or unloaded after the start.
        unsafe {
            backtrace::trace_unsynchronized(visit);
        }
        stack
    }

    /// Adds a frame; false if it was the last one.
    fn push(&mut self, ip: usize) -> bool {
        if let Some(frame) = self.frames.get_mut(self.length) {
            *frame = ip;
            self.length += 1;
        }
        self.length < MAX_FRAMES
    }

    pub(crate) fn frames(&self) -> &[usize] {
        self.frames.get(..self.length).unwrap_or_default()
    }
}

/// The address of the instruction that a signal interrupted; zero where this is not known.
pub(crate) fn program_counter(context: *const c_void) -> usize {
    let context = context.cast::<libc::ucontext_t>();
    #[allow(unsafe_code, reason = "the kernel passes a pointer")]
    // SAFETY: the kernel passes a valid context to a handler with SA_SIGINFO, or a test passes null.
    let Some(context) = (unsafe { context.as_ref() }) else {
        return 0;
    };
    #[cfg(target_arch = "x86_64")]
    {
        let registers = &context.uc_mcontext.gregs;
        let index = usize::try_from(libc::REG_RIP).unwrap_or_default();
        let pc = registers.get(index).copied().unwrap_or_default();
        usize::try_from(pc).unwrap_or_default()
    }
    #[cfg(target_arch = "aarch64")]
    {
        usize::try_from(context.uc_mcontext.pc).unwrap_or_default()
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = context;
        0
    }
}
