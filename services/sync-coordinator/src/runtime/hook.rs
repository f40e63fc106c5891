//! Execution of lifecycle hooks, with the kubelet's error messages.
//!
//! A hook's output may be confidential. It goes into the container's status, as in the kubelet, and
//! into no log or span.

use std::rc::Rc;
use std::time::Duration;

use polylet_cri::CriError;
use polylet_http::{Get, GetError, GetTarget};
use polylet_model::hook::Hook;
use polylet_wire::common::v1::PodRef;

use super::{RuntimeManager, StepContext, events, metrics};
use crate::core::step::{StepFailure, StepOutcome};

/// The kubelet's user agent, with the version of the Kubernetes API in use.
const USER_AGENT: &str = "kube-lifecycle/1.36";

/// The maximum size of a command's output in a message.
const MAX_OUTPUT: usize = 10 << 10;

/// How long a hook past its limit may continue: its container is about to be killed.
const POST_STOP_GRACE: Duration = Duration::from_secs(10);

/// A hook and its target.
struct HookRun {
    reference: PodRef,
    hook: Hook,
    id: String,
    container: String,
    /// The pod as the kubelet formats it: `<name>_<namespace>(<uid>)`.
    pod: String,
    /// The address for an HTTP hook without a host.
    host: Option<String>,
}

/// Runs a postStart hook, without a time limit: it is abandoned with its pod.
pub async fn post_start(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    id: &str,
    container: &str,
    hook: &Hook,
) -> Result<StepOutcome, StepFailure> {
    let run = new_run(manager, context, id, container, hook);
    Ok(hook_outcome(
        context,
        container,
        "postStart",
        run_hook(manager, &run).await,
    ))
}

/// Runs a preStop hook. Past its limit in seconds it continues in the background until its container
/// ends.
pub async fn pre_stop(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    id: &str,
    container: &str,
    hook: &Hook,
    limit: u32,
) -> Result<StepOutcome, StepFailure> {
    let run = new_run(manager, context, id, container, hook);
    let limit = Duration::from_secs(u64::from(limit));
    let hook_manager = Rc::clone(manager);
    let mut hook = Box::pin(async move { run_hook(&hook_manager, &run).await });
    if let Ok(result) = tokio::time::timeout(limit, &mut hook).await {
        return Ok(hook_outcome(context, container, "preStop", result));
    }
    let drain = manager.ctx.drain();
    let (notices, pod) = (manager.ctx.notices().clone(), context.pod.clone());
    let field_path = events::container_path(context, container);
    manager
        .ctx
        .background("preStop hook past its limit", async move {
            tokio::select! {
                result = hook => {
                    // Usually because its container was killed.
                    if result.is_err() {
                        notices.warning(&pod, &field_path, "FailedPreStopHook", "PreStopHook failed");
                    }
                }
                () = drain.cancelled() => {}
                () = tokio::time::sleep(POST_STOP_GRACE) => {}
            }
        });
    Ok(StepOutcome::Done)
}

fn new_run(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    id: &str,
    container: &str,
    hook: &Hook,
) -> HookRun {
    let pod = &context.pod;
    let sandbox = context
        .observed
        .container(id)
        .and_then(|seen| context.sandbox(&seen.sandbox_id));
    let host = sandbox.and_then(|sandbox| match sandbox.ips.first() {
        Some(ip) => Some(ip.clone()),
        None if sandbox.host_network => {
            polylet_kit::address::node_address(manager.ctx.config()).map(|ip| ip.to_string())
        }
        None => None,
    });
    HookRun {
        reference: pod.clone(),
        hook: hook.clone(),
        id: id.to_owned(),
        container: container.to_owned(),
        pod: format!("{}_{}({})", pod.name, pod.namespace, pod.uid),
        host,
    }
}

fn hook_outcome(
    context: &StepContext,
    container: &str,
    hook: &str,
    result: Result<(), String>,
) -> StepOutcome {
    let Err(message) = result else {
        return StepOutcome::Done;
    };
    tracing::warn!(
        pod = context.pod_name(),
        pod_uid = context.pod.uid,
        container,
        hook,
        "lifecycle hook failed"
    );
    StepOutcome::HookFailed(message)
}

/// A sleep that counts if it is dropped before it is over.
struct Sleep {
    is_over: bool,
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if !self.is_over {
            metrics::count_sleep_cut_off();
        }
    }
}

/// Runs a hook.
///
/// # Errors
/// The kubelet's message.
async fn run_hook(manager: &Rc<RuntimeManager>, run: &HookRun) -> Result<(), String> {
    let target = format!("for Container {:?} in Pod {:?}", run.container, run.pod);
    match &run.hook {
        Hook::Exec { command } => exec(manager, run, command).await.map_err(|(error, output)| {
            let command = command.join(" ");
            format!(
                "Exec lifecycle hook ([{command}]) {target} failed - error: {error}, message: {output:?}"
            )
        }),
        Hook::Http { path, .. } => get(manager, run)
            .await
            .map_err(|error| format!("HTTP lifecycle hook ({path}) {target} failed - error: {error}")),
        Hook::Sleep { seconds } => {
            let mut sleep = Sleep { is_over: false };
            tokio::time::sleep(Duration::from_secs(*seconds)).await;
            sleep.is_over = true;
            Ok(())
        }
        Hook::Invalid { message } => Err(format!("Cannot run handler: {message}")),
    }
}

/// Runs a command without a time limit: it ends with its container.
async fn exec(
    manager: &Rc<RuntimeManager>,
    run: &HookRun,
    command: &[String],
) -> Result<(), (String, String)> {
    let output = manager
        .runtime
        .exec_sync(&run.id, command.to_vec(), None)
        .await
        .map_err(|error: CriError| (error.message().to_owned(), String::new()))?;
    if output.exit_code == 0 {
        return Ok(());
    }
    let text = |bytes: &[u8]| {
        let end = bytes.len().min(MAX_OUTPUT);
        String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
    };
    let errors = text(&output.stderr);
    let command = command.join(" ");
    let error = format!(
        "command '{command}' exited with {}: {errors}",
        output.exit_code
    );
    Err((error, text(&output.stdout) + &errors))
}

/// Sends an HTTP request; to a server without TLS again without TLS.
async fn get(manager: &Rc<RuntimeManager>, run: &HookRun) -> Result<(), String> {
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
    let mut request = Get {
        target: GetTarget::new(*https, &host, *port, path),
        headers: headers.clone(),
        user_agent: USER_AGENT,
        requester: run.reference.uid.clone(),
    };
    let mut response = manager.http.get_status(&request).await;
    if response.as_ref().is_err_and(GetError::is_plain_http) {
        request.target = request.target.without_tls();
        // Credentials are not sent over an unencrypted connection.
        request
            .headers
            .retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
        if manager.http.get_status(&request).await.is_ok() {
            let message = format!(
                "request to HTTPS lifecycle hook {}:{} got HTTP response, retry with HTTP succeeded",
                bracketed(&host),
                port
            );
            let notices = manager.ctx.notices();
            notices.warning(&run.reference, "", "LifecycleHTTPFallback", message);
            response = Ok(0);
        }
    }
    response
        .map(drop)
        .map_err(|error| polylet_kit::report(&error))
}

/// A host as in a URL: an IPv6 address in brackets.
fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}
