//! A process of this program, under a service's name, is killed at the armed point and at no other.

#![cfg(feature = "system-calls")]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};

/// What the process changes.
fn effects() {
    let at = std::env::var_os("AT").unwrap();
    // The random name of the temporary directory is no part of the names.
    let parent = Path::new(&at).join("a/b/c");
    fs::create_dir_all(&parent).unwrap();
    let directory = parent.join("made-1");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("file"), "text").unwrap();
    fs::rename(directory.join("file"), directory.join("renamed")).unwrap();
    fs::remove_file(directory.join("renamed")).unwrap();
    let missing = fs::remove_dir(directory.join("missing")).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
}

fn run(control: &Path, at: &Path) -> ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .arg0("/usr/bin/polylet-tester")
        .args(["--exact", "acts_as_a_service"])
        .env(polylet_crash_points::VARIABLE, control)
        .env("AT", at)
        .status()
        .unwrap()
}

#[test]
fn acts_as_a_service() {
    polylet_crash_points::install();
    if std::env::var_os("AT").is_some() {
        effects();
    }
}

#[test]
fn effects_are_recorded_and_the_armed_one_kills() {
    let control = tempfile::tempdir().unwrap();
    let record = control.path().join("record");
    fs::write(&record, "").unwrap();
    let at = tempfile::tempdir().unwrap();
    assert!(run(control.path(), at.path()).success());
    let recorded = fs::read_to_string(&record).unwrap();
    let lines: Vec<String> = recorded
        .lines()
        .filter(|line| line.contains("made-*"))
        .map(|line| {
            let mut words = line.split(' ');
            let (service, phase, call) = (words.next(), words.next(), words.next());
            let path = words.next().unwrap().rsplit('/').next().unwrap();
            format!(
                "{} {} {} {path}",
                service.unwrap(),
                phase.unwrap(),
                call.unwrap()
            )
        })
        .collect();
    let expected = [
        "tester before mkdir made-*",
        "tester after mkdir made-*",
        "tester before write file",
        "tester after write file",
        "tester before rename renamed",
        "tester after rename renamed",
        "tester before unlink renamed",
        "tester after unlink renamed",
        "tester before rmdir missing",
    ];
    assert_eq!(lines, expected);

    let line = recorded.lines().find(|line| line.contains("before rename"));
    fs::write(
        control.path().join("armed"),
        format!("1 {}\n", line.unwrap()),
    )
    .unwrap();
    let at = tempfile::tempdir().unwrap();
    assert_eq!(run(control.path(), at.path()).signal(), Some(9));
    let left = fs::read_to_string(at.path().join("a/b/c/made-1/file")).unwrap();
    assert_eq!(left, "text");
    assert!(control.path().join("crashed").exists());
    // Only once.
    let at = tempfile::tempdir().unwrap();
    assert!(run(control.path(), at.path()).success());
}
