//! The requests, and what of the responses is compared.

use std::time::Duration;

use crate::callers::NodeApiCaller;
use crate::client::{CallerConnection, CallerResponse};

const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW",
];

/// Paths; `NS` is the pod's namespace. None of them streams without an end.
const PATHS: [&str; 56] = [
    "/pods",
    "/pods/",
    "/runningpods",
    "/runningpods/",
    "/healthz",
    "/healthz/",
    "/healthz/ping",
    "/healthz/log",
    "/healthz/syncloop",
    "/healthz/none",
    "/healthz?verbose",
    "/configz",
    "/configz/",
    "/stats",
    "/stats/",
    "/stats/summary",
    "/stats/summary/",
    "/stats/summary?only_cpu_and_memory=true",
    "/stats/none",
    "/metrics",
    "/metrics/",
    "/metrics/cadvisor",
    "/metrics/cadvisor/",
    "/metrics/probes",
    "/metrics/resource",
    "/metrics/slis",
    "/metrics/none",
    "/logs",
    "/logs/none",
    "/logs/../pods",
    "/logs/%2e%2e/%2e%2e/etc/passwd",
    "/checkpoint/NS/none/main",
    "/statusz",
    "/statusz/",
    "/flagz",
    "/exec/NS/web/main",
    "/exec/NS/web/main?command=true&output=1",
    "/exec/NS/none/main?command=true&output=1",
    "/exec/NS/web",
    "/attach/NS/web/main?output=1",
    "/portForward/NS/web",
    "/portForward/NS/none",
    "/run/NS/web/main?cmd=true",
    "/run/NS/web/none?cmd=true",
    "/containerLogs/NS/web/main",
    "/containerLogs/NS/web/main?tailLines=x",
    "/containerLogs/NS/web/none",
    "/containerLogs/NS/none/main",
    "/containerLogs/NS/web",
    "/debug/flags/v",
    "/debug/pprof/cmdline",
    "/",
    "/none",
    "/PODS",
    "//pods",
    "/cri/exec/token",
];

/// Headers that clients act on.
const HEADERS: [&str; 5] = [
    "content-type",
    "allow",
    "location",
    "www-authenticate",
    "x-content-type-options",
];

/// All responses to a caller, by caller, method and path.
pub(crate) async fn ask(
    caller: &NodeApiCaller,
    port: u16,
    namespace: &str,
) -> Vec<(String, String)> {
    let mut connection = CallerConnection::new(caller, port);
    let mut responses = Vec::new();
    for path in PATHS {
        let asked = path.replace("NS", namespace);
        for method in METHODS {
            let response = loop {
                match connection.ask(method, &asked).await {
                    // Polylet limits how often the API server is asked.
                    Ok(response) if response.code == 429 => {
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                    other => break other,
                }
            };
            let text = match response {
                Ok(response) => text(method, &response),
                Err(error) => error,
            };
            responses.push((format!("{} {method} {path}", caller.name), text));
        }
    }
    responses
}

/// Code and headers, and the body unless it is a success: those depend on the node.
fn text(method: &str, response: &CallerResponse) -> String {
    let mut text = response.code.to_string();
    for name in HEADERS {
        if let Some(value) = response.headers.get(name) {
            text.push_str(&format!(" {name}={value:?}"));
        }
    }
    if response.code >= 300 && method != "HEAD" {
        text.push_str(&format!(" {:?}", response.body));
    }
    text
}
