//! Profiles of this process, as `go tool pprof` reads them.

use std::fs;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use polylet_profile::{CpuSampling, HeapSampling, ProfileError, ProfileSamples, SampledAllocator};

#[global_allocator]
static ALLOCATOR: SampledAllocator = SampledAllocator;

/// The processor's timer and the allocator are the process's: one test at a time.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[inline(never)]
fn spend_processor_time(duration: Duration) -> u64 {
    let start = Instant::now();
    let mut sum = 0_u64;
    while start.elapsed() < duration {
        for number in 0..10_000_u64 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
    }
    sum
}

#[inline(never)]
fn allocate_and_keep(kept: &mut Vec<Vec<u8>>) {
    for _ in 0..64 {
        kept.push(black_box(vec![1; 32 * 1024]));
    }
}

#[inline(never)]
fn allocate_and_free() {
    for _ in 0..64 {
        drop(black_box(vec![1_u8; 32 * 1024]));
    }
}

/// The output of `go tool pprof`; `None` where Go is not installed.
fn go_tool_pprof(samples: &ProfileSamples, options: &[&str]) -> Option<String> {
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("not checked with go tool pprof: there is no go");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("profile.pb.gz");
    fs::write(&file, samples.encode().unwrap()).unwrap();
    let output = Command::new("go")
        .args(["tool", "pprof"])
        .args(options)
        .arg(&file)
        .env("PPROF_TMPDIR", directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    Some(text)
}

#[test]
fn processor_time_is_attributed_to_the_function_that_spends_it() {
    let _only = ONE_AT_A_TIME.lock();
    let sampling = CpuSampling::start().unwrap();
    assert!(matches!(CpuSampling::start(), Err(ProfileError::Busy)));
    let other = std::thread::spawn(|| spend_processor_time(Duration::from_millis(300)));
    spend_processor_time(Duration::from_millis(300));
    other.join().unwrap();
    let samples = sampling.finish();
    assert_eq!(samples.dropped(), 0);
    let encoded = samples.encode().unwrap();
    assert_eq!(encoded.get(..2), Some(&[0x1f, 0x8b][..]), "gzip");
    if let Some(top) = go_tool_pprof(&samples, &["-top"]) {
        let line = top
            .lines()
            .find(|line| line.contains("spend_processor_time"));
        let line = line.unwrap_or_else(|| panic!("{top}"));
        let share = line
            .split_whitespace()
            .nth(4)
            .and_then(|text| text.strip_suffix('%'));
        let share: f64 = share
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("{top}"));
        // With the functions that it calls, of which there are some without optimization.
        assert!(share > 80.0, "{top}");
        assert!(top.contains("Type: cpu"), "{top}");
    }
    // A second one starts anew, and one that is dropped stops the timer.
    let second = CpuSampling::start().unwrap();
    drop(second);
    spend_processor_time(Duration::from_millis(50));
    drop(CpuSampling::start().unwrap());
}

#[test]
fn memory_is_attributed_to_the_function_that_allocates_it() {
    let _only = ONE_AT_A_TIME.lock();
    let mut kept = Vec::new();
    let sampling = HeapSampling::start().unwrap();
    assert!(matches!(HeapSampling::start(), Err(ProfileError::Busy)));
    allocate_and_keep(&mut kept);
    allocate_and_free();
    let samples = sampling.finish();
    // Two megabytes each.
    let megabytes = |sample: &str, function: &str| {
        let options = ["-top", "-cum", "-unit=MB", "-nodefraction=0", sample];
        let top = go_tool_pprof(&samples, &options)?;
        let line = top.lines().find(|line| line.contains(function));
        let sum = line.and_then(|line| line.split_whitespace().nth(3)?.strip_suffix("MB"));
        Some(sum.map_or(0.0, |sum| sum.parse::<f64>().unwrap()))
    };
    let Some(all) = megabytes("-alloc_space", "allocate_and_keep") else {
        return;
    };
    assert!((1.0..4.0).contains(&all), "{all}");
    let freed = megabytes("-alloc_space", "allocate_and_free").unwrap();
    assert!((1.0..4.0).contains(&freed), "{freed}");
    let in_use = megabytes("-inuse_space", "allocate_and_keep").unwrap();
    assert!((1.0..4.0).contains(&in_use), "{in_use}");
    assert!(megabytes("-inuse_space", "allocate_and_free").unwrap() < 0.5);
    drop(kept);
}

/// A timer that goes on in the program that the process becomes ends it, as it has no handler there.
#[test]
fn a_program_that_the_process_becomes_is_not_interrupted() {
    use std::os::unix::process::CommandExt;
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    const AGAIN: &str = "POLYLET_TEST_BECOMES_ANOTHER_PROGRAM";
    if std::env::var_os(AGAIN).is_some() {
        let _sampling = CpuSampling::start().unwrap();
        polylet_profile::stop_timer();
        let spin = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        panic!("{}", Command::new("sh").args(["-c", spin]).exec());
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([
        "--exact",
        "a_program_that_the_process_becomes_is_not_interrupted",
    ]);
    let status = again.env(AGAIN, "1").status().unwrap();
    assert!(status.success(), "{status}");
}
