//! Lifecycle hooks, carried out: upstream's words where they fail.
//!
//! A hook's output may hold what nobody else should read. It goes into the container's status, as
//! upstream has it, and into no log and no span.

use std::rc::Rc;
use std::time::Duration;

use polylet_cri::CriError;
use polylet_http::{Get, GetError};
use polylet_model::hook::Hook;
use polylet_wire::common::v1::PodRef;

use super::{Hands, Job, notices};
use crate::core::learn::{Outcome, Trouble};

/// As upstream's; the version is that of the API this node speaks.
const USER_AGENT: &str = "kube-lifecycle/1.36";

/// What is told of a command's output.
const MAX_OUTPUT: usize = 10 << 10;

/// A hook past its time ends with its container, which is about to be killed.
const AFTERLIFE: Duration = Duration::from_secs(10);

/// What a hook is run with.
struct Run {
    of: PodRef,
    hook: Hook,
    id: String,
    container: String,
    /// As upstream names a pod: "name_namespace(uid)".
    pod: String,
    /// Whom an HTTP hook asks that names no host.
    host: Option<String>,
}

/// Runs what follows a start, however long it takes: it is given up with its pod.
pub async fn post_start(
    hands: &Rc<Hands>,
    job: &Job,
    id: &str,
    container: &str,
    hook: &Hook,
) -> Result<Outcome, Trouble> {
    let run = run_of(hands, job, id, container, hook);
    Ok(told(job, container, "postStart", carry(hands, &run).await))
}

/// Runs what comes before a stop. Past its limit it is waited for no longer, and goes on while the
/// container does.
pub async fn pre_stop(
    hands: &Rc<Hands>,
    job: &Job,
    id: &str,
    container: &str,
    hook: &Hook,
    limit: u32,
) -> Result<Outcome, Trouble> {
    let run = run_of(hands, job, id, container, hook);
    let limit = Duration::from_secs(u64::from(limit));
    let hands_too = Rc::clone(hands);
    let mut hook = Box::pin(async move { carry(&hands_too, &run).await });
    if let Ok(result) = tokio::time::timeout(limit, &mut hook).await {
        return Ok(told(job, container, "preStop", result));
    }
    let drain = hands.ctx.drain();
    let (notices, pod) = (hands.ctx.notices().clone(), job.pod.clone());
    let part = notices::part_of(job, container);
    hands
        .ctx
        .background("preStop hook past its time", async move {
            tokio::select! {
                result = hook => {
                    // Most often its container was killed.
                    if result.is_err() {
                        notices.warning(&pod, &part, "FailedPreStopHook", "PreStopHook failed");
                    }
                }
                () = drain.cancelled() => {}
                () = tokio::time::sleep(AFTERLIFE) => {}
            }
        });
    Ok(Outcome::Done)
}

fn run_of(hands: &Rc<Hands>, job: &Job, id: &str, container: &str, hook: &Hook) -> Run {
    let pod = &job.pod;
    let sandbox = job
        .observed
        .container(id)
        .and_then(|seen| job.sandbox(&seen.sandbox_id));
    let host = sandbox.and_then(|sandbox| match sandbox.ips.first() {
        Some(ip) => Some(ip.clone()),
        None if sandbox.host_network => {
            polylet_kit::address::of_node(hands.ctx.config()).map(|ip| ip.to_string())
        }
        None => None,
    });
    Run {
        of: pod.clone(),
        hook: hook.clone(),
        id: id.to_owned(),
        container: container.to_owned(),
        pod: format!("{}_{}({})", pod.name, pod.namespace, pod.uid),
        host,
    }
}

fn told(job: &Job, container: &str, hook: &str, result: Result<(), String>) -> Outcome {
    let Err(message) = result else {
        return Outcome::Done;
    };
    tracing::warn!(
        k8s.pod.uid = job.pod.uid,
        k8s.pod.name = job.pod.name,
        k8s.container.name = container,
        hook,
        "lifecycle hook failed"
    );
    Outcome::HookFailed(message)
}

/// Does what the hook says; else upstream's words for what went wrong.
async fn carry(hands: &Rc<Hands>, run: &Run) -> Result<(), String> {
    let whose = format!("for Container {:?} in Pod {:?}", run.container, run.pod);
    match &run.hook {
        Hook::Exec { command } => exec(hands, run, command).await.map_err(|(why, output)| {
            let words = command.join(" ");
            format!(
                "Exec lifecycle hook ([{words}]) {whose} failed - error: {why}, message: {output:?}"
            )
        }),
        Hook::Http { path, .. } => get(hands, run)
            .await
            .map_err(|why| format!("HTTP lifecycle hook ({path}) {whose} failed - error: {why}")),
        Hook::Sleep { seconds } => {
            tokio::time::sleep(Duration::from_secs(*seconds)).await;
            Ok(())
        }
        Hook::Impossible { why } => Err(format!("Cannot run handler: {why}")),
    }
}

/// Runs a command to its end, without a limit of its own: the container's end is its end too.
async fn exec(hands: &Rc<Hands>, run: &Run, command: &[String]) -> Result<(), (String, String)> {
    let said = hands
        .runtime
        .exec_sync(&run.id, command.to_vec(), None)
        .await
        .map_err(|error: CriError| (error.message().to_owned(), String::new()))?;
    if said.exit_code == 0 {
        return Ok(());
    }
    let text = |bytes: &[u8]| {
        let end = bytes.len().min(MAX_OUTPUT);
        String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
    };
    let errors = text(&said.stderr);
    let words = command.join(" ");
    let why = format!("command '{words}' exited with {}: {errors}", said.exit_code);
    Err((why, text(&said.stdout) + &errors))
}

/// Asks once; a server that does not speak TLS is asked again without.
async fn get(hands: &Rc<Hands>, run: &Run) -> Result<(), String> {
    let Hook::Http {
        host,
        port,
        path,
        https,
        headers,
    } = &run.hook
    else {
        return Ok(());
    };
    let Some(host) = host.clone().or_else(|| run.host.clone()) else {
        return Err("failed to find networking container".to_owned());
    };
    let mut ask = Get {
        https: *https,
        host,
        port: *port,
        path: path.clone(),
        headers: headers.clone(),
        user_agent: USER_AGENT,
    };
    let mut answer = polylet_http::get(&ask, &hands.tls).await;
    if answer.as_ref().is_err_and(GetError::is_plain_http) {
        ask.https = false;
        // What was meant for an encrypted connection goes over no other.
        ask.headers
            .retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
        if polylet_http::get(&ask, &hands.tls).await.is_ok() {
            let words = format!(
                "request to HTTPS lifecycle hook {}:{} got HTTP response, retry with HTTP succeeded",
                bracketed(&ask.host),
                ask.port
            );
            let notices = hands.ctx.notices();
            notices.warning(&run.of, "", "LifecycleHTTPFallback", words);
            answer = Ok(0);
        }
    }
    answer
        .map(drop)
        .map_err(|error| polylet_kit::report(&error))
}

/// As a URL has a host: an IPv6 address in brackets.
fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}
