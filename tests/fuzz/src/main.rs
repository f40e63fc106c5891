//! `cargo fuzz-long`: runs itself once per target, as libFuzzer around the target that the environment
//! names. The arguments of those runs are libFuzzer's.

// libFuzzer calls back through C.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use clap::Parser;
use polylet_fuzz::runner::{self, FuzzArgs};
use polylet_fuzz::{TARGET_VARIABLE, Target, target};

/// Processor time of one input.
const MAX_TIME: Duration = Duration::from_secs(1);

static TARGET: OnceLock<&'static Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some(target) = TARGET.get() {
        target.run(data, MAX_TIME);
    }
});

unsafe extern "C" {
    fn LLVMFuzzerRunDriver(
        argc: *mut c_int,
        argv: *mut *mut *mut c_char,
        callback: unsafe extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

unsafe extern "C" fn test_one_input(data: *const u8, size: usize) -> c_int {
    // SAFETY: libFuzzer passes a buffer of this size.
    unsafe { libfuzzer_sys::test_input_wrap(data, size) }
}

// Rust's own main and not libFuzzer's: it sets up the handler that reports stack overflows.
fn main() -> ExitCode {
    if let Ok(name) = std::env::var(TARGET_VARIABLE) {
        return engine(&name);
    }
    match runner::run(&FuzzArgs::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fuzz: {}", polylet_kit::report(&error));
            ExitCode::FAILURE
        }
    }
}

/// Runs libFuzzer, which usually exits by itself.
fn engine(name: &str) -> ExitCode {
    let Some(found) = target(name) else {
        eprintln!("{TARGET_VARIABLE}: no target {name:?}");
        return ExitCode::FAILURE;
    };
    TARGET.get_or_init(|| found);
    let args = std::env::args_os().filter_map(|arg| CString::new(arg.into_encoded_bytes()).ok());
    let mut args: Vec<*mut c_char> = args.map(CString::into_raw).collect();
    let mut argc = c_int::try_from(args.len()).unwrap_or_default();
    args.push(std::ptr::null_mut());
    let mut argv = args.as_mut_ptr();
    // SAFETY: the arguments live as long as the process.
    let code = unsafe { LLVMFuzzerRunDriver(&raw mut argc, &raw mut argv, test_one_input) };
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}
