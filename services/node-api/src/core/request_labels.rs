//! The labels of requests in metrics, which are upstream's: none of them is what a client chose.

/// Methods with a label of their own.
const METHODS: [&str; 8] = [
    "OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT",
];
/// The roots of paths with a label of their own.
const PATHS: [&str; 21] = [
    "attach",
    "checkpoint",
    "configz",
    "containerLogs",
    "debug",
    "exec",
    "flagz",
    "healthz",
    "logs",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "pods",
    "portForward",
    "pprof",
    "run",
    "runningpods",
    "stats",
    "statusz",
    "other",
];
/// As upstream writes them, so that no path of `portForward` is one.
const LONG_RUNNING: [&str; 4] = ["exec", "attach", "portforward", "debug"];

/// `method`, `path`, `server_type` and `long_running` of a request.
pub(crate) fn of_request(method: &str, path: &str, is_read_only: bool) -> [&'static str; 4] {
    let known = METHODS.into_iter().find(|known| *known == method);
    let path = path_label(path);
    let long = LONG_RUNNING.contains(&path);
    [
        known.unwrap_or("other"),
        path,
        if is_read_only {
            "readonly"
        } else {
            "readwrite"
        },
        if long { "true" } else { "false" },
    ]
}

fn path_label(path: &str) -> &'static str {
    let path = path.strip_prefix('/').unwrap_or(path);
    let mut parts = path.splitn(3, '/');
    let root = match (parts.next().unwrap_or_default(), parts.next()) {
        ("metrics", Some(next)) => format!("metrics/{next}"),
        (root, _) => root.to_owned(),
    };
    let known = PATHS.into_iter().find(|known| *known == root);
    known.unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_upstreams() {
        for (method, path, labels) in [
            ("GET", "/pods", ["GET", "pods", "readwrite", "false"]),
            (
                "GET",
                "/metrics/cadvisor",
                ["GET", "metrics/cadvisor", "readwrite", "false"],
            ),
            (
                "GET",
                "/metrics/own",
                ["GET", "other", "readwrite", "false"],
            ),
            ("GET", "/metrics", ["GET", "metrics", "readwrite", "false"]),
            (
                "POST",
                "/exec/ns/pod/c",
                ["POST", "exec", "readwrite", "true"],
            ),
            (
                "POST",
                "/portForward/ns/pod",
                ["POST", "portForward", "readwrite", "false"],
            ),
            ("PATCH", "/secret", ["other", "other", "readwrite", "false"]),
            ("GET", "", ["GET", "other", "readwrite", "false"]),
        ] {
            assert_eq!(of_request(method, path, false), labels, "{path}");
        }
        assert_eq!(of_request("GET", "/pods", true)[2], "readonly");
    }
}
