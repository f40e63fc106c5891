use std::collections::BTreeSet;
use std::process::Output;
use std::time::{Duration, Instant};

use polylet_harness::{HarnessError, Node, http};

use crate::example;
use crate::progress::line;

/// Runs a `polylet` command and prints it with its output.
pub(crate) async fn run_polylet(node: &Node, args: &[&str]) -> Result<(), HarnessError> {
    println!("\n$ polylet {}", args.join(" "));
    let Output {
        status,
        stdout,
        stderr,
    } = node.cli(args).await?;
    print!(
        "{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    if status.success() {
        return Ok(());
    }
    Err(HarnessError::Failed {
        program: format!("polylet {}", args.join(" ")),
        status: status.to_string(),
        output: "see above".to_owned(),
    })
}

/// Prints the HTTP response of the example pod.
pub(crate) async fn print_response(ip: &str) -> Result<(), HarnessError> {
    println!("\nResponse of the pod at http://{ip}:{}/", example::PORT);
    let response = http::get(ip, example::PORT, "/").await?;
    line(&response.status);
    response.body.lines().for_each(line);
    Ok(())
}

/// Waits up to 5 s until most processes have exported their spans, which they do in batches.
pub(crate) async fn wait_for_trace(node: &Node, uid: &str) {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(5) {
        let trace = node.trace(uid).await;
        let spans = trace.map(|trace| trace.spans).unwrap_or_default();
        let services: BTreeSet<_> = spans.into_iter().map(|span| span.service).collect();
        if services.contains("status-reporter") && services.len() >= 6 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
