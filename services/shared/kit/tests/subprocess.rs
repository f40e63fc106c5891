//! Child processes of the example with tasks: outputs, progress, deadlines, kills.

#[path = "../examples/subprocess/misbehaving_task.rs"]
mod misbehaving_task;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use polylet_kit::subprocess::{SubprocessError, SubprocessLimits, SubprocessPool};
use polylet_kit::{CancellationToken, ServiceDescriptor};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use misbehaving_task::MisbehavingTask;

static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "pleg",
    version: "0.0.1",
    about: "an example",
    serves: &[],
    calls: &[],
    state_files: &[],
    subprocesses: &[],
};

fn program() -> PathBuf {
    // Cargo builds the examples before the tests of the same package.
    let tests = std::env::current_exe().unwrap();
    let program = tests
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples/subprocess");
    assert!(
        program.exists(),
        "run all tests of the package: its examples are part of them"
    );
    program
}

fn pool(deadline_ms: u64) -> SubprocessPool {
    let limits = SubprocessLimits {
        active: 4,
        total: 8,
        per_pod: 2,
    };
    SubprocessPool::new(&DESCRIPTOR, limits)
        .with_binary(program())
        .with_deadline(Duration::from_millis(deadline_ms))
}

async fn run(
    pool: &SubprocessPool,
    task: MisbehavingTask,
) -> Result<Result<String, String>, SubprocessError> {
    pool.run(&task, None, &CancellationToken::new()).await
}

/// Waits until a process is gone, or only its exit status is left.
async fn wait_gone(pid: u32) {
    let began = Instant::now();
    let stat = format!("/proc/{pid}/stat");
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(began.elapsed() < Duration::from_secs(10), "{pid} lives on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

type TaskResult = Result<Result<String, String>, SubprocessError>;

/// Runs a task that reports a process id, until its end or `cancel`.
fn start(
    pool: &SubprocessPool,
    task: MisbehavingTask,
    cancel: &CancellationToken,
) -> (JoinHandle<TaskResult>, oneshot::Receiver<u32>) {
    let (pool, cancel) = (pool.clone(), cancel.clone());
    let (reported, pid) = oneshot::channel();
    let running = tokio::spawn(async move {
        let mut reported = Some(reported);
        let on_progress = |pid| {
            if let Some(reported) = reported.take() {
                let _ = reported.send(pid);
            }
        };
        pool.run_with_progress(&task, None, &cancel, on_progress)
            .await
    });
    (running, pid)
}

#[tokio::test]
async fn a_task_larger_than_a_pipe_comes_back() {
    let text = "x".repeat(3 << 20);
    let output = run(&pool(20_000), MisbehavingTask::Echo(text.clone())).await;
    assert!(output.unwrap().unwrap() == text);
}

#[tokio::test]
async fn progress_puts_the_deadline_off() {
    let began = Instant::now();
    let mut steps = Vec::new();
    let output = pool(700)
        .run_with_progress(
            &MisbehavingTask::Slow(15),
            None,
            &CancellationToken::new(),
            |step| steps.push(step),
        )
        .await;
    assert_eq!(output.unwrap(), Ok("done".to_owned()));
    assert!(
        began.elapsed() > Duration::from_millis(1400),
        "two deadlines"
    );
    assert!(steps.len() > 5 && steps.is_sorted(), "{steps:?}");
}

#[tokio::test]
async fn a_child_without_progress_is_killed_with_its_programs() {
    let pool = pool(1500);
    let (running, pid) = start(&pool, MisbehavingTask::Program, &CancellationToken::new());
    let sleep = pid.await.unwrap();
    assert!(Path::new(&format!("/proc/{sleep}")).exists());
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, SubprocessError::Deadline(1)), "{error}");
    wait_gone(sleep).await;
}

#[tokio::test]
async fn cancel_and_drop_kill_the_child() {
    let pool = pool(60_000);
    let cancel = CancellationToken::new();
    let (running, pid) = start(&pool, MisbehavingTask::Hang("a".to_owned()), &cancel);
    let hung = pid.await.unwrap();
    cancel.cancel();
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, SubprocessError::Canceled), "{error}");
    wait_gone(hung).await;

    let (running, pid) = start(
        &pool,
        MisbehavingTask::Hang("b".to_owned()),
        &CancellationToken::new(),
    );
    let hung = pid.await.unwrap();
    running.abort();
    wait_gone(hung).await;
}

#[tokio::test]
async fn a_child_that_fails_says_how() {
    let pool = pool(20_000);
    let error = run(&pool, MisbehavingTask::Panic).await.unwrap_err();
    let SubprocessError::Panicked(message) = error else {
        panic!("{error}");
    };
    assert!(message.contains("on purpose"), "{message}");
    let error = run(&pool, MisbehavingTask::Exit).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the child process ended without an answer: exit status: 3"
    );
}

#[tokio::test]
async fn hung_children_give_their_place_to_others() {
    let pool = pool(60_000);
    let cancel = CancellationToken::new();
    let mut hung = Vec::new();
    for number in 0..6 {
        let (running, pid) = start(&pool, MisbehavingTask::Hang(number.to_string()), &cancel);
        hung.push((running, pid));
    }
    // Four may be active: the others start when those are seen to wait.
    for (_, pid) in &mut hung {
        pid.await.unwrap();
    }
    let echo = run(&pool, MisbehavingTask::Echo("well".to_owned())).await;
    assert_eq!(echo.unwrap(), Ok("well".to_owned()));
    cancel.cancel();
    for (running, _) in hung {
        assert!(running.await.unwrap().is_err());
    }
}

#[tokio::test]
async fn children_die_with_their_parent() {
    let script = "exec 3<&0; \"$0\" run-subprocess misbehave $$ <&3 & wait";
    let mut parent = Command::new("sh")
        .args(["-c", script])
        .arg(program())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = parent.stdin.take().unwrap();
    stdin.write_all(br#"{"Hang":"x"}"#).unwrap();
    drop(stdin);
    let mut stdout = parent.stdout.take().unwrap();
    let mut size = [0; 4];
    stdout.read_exact(&mut size).unwrap();
    let mut message = vec![0; u32::from_le_bytes(size) as usize];
    stdout.read_exact(&mut message).unwrap();
    let message: serde_json::Value = serde_json::from_slice(&message).unwrap();
    let pid = message["Progress"].as_u64().unwrap();
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_gone(u32::try_from(pid).unwrap()).await;
}
