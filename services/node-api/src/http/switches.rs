//! Endpoints that the configuration switches off: they answer as upstream.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::any;

use crate::config::Switches;

/// Paths that are switched off, with their message.
fn disabled_paths(switches: Switches) -> Vec<(&'static str, &'static str)> {
    if !switches.debugging {
        let paths = [
            "/run/",
            "/exec/",
            "/attach/",
            "/portForward/",
            "/containerLogs/",
            "/runningpods/",
            "/debug/pprof/",
            "/logs/",
        ];
        return paths
            .map(|path| (path, "Debug endpoints are disabled."))
            .into();
    }
    let one = [
        (switches.system_logs, "/logs/", "logs endpoint is disabled."),
        (
            switches.debug_flags,
            "/debug/flags/v",
            "flags endpoint is disabled.",
        ),
        (
            switches.profiling,
            "/debug/pprof/",
            "profiling endpoint is disabled.",
        ),
    ];
    let off = one.into_iter().filter(|(is_on, _, _)| !is_on);
    off.map(|(_, path, message)| (path, message)).collect()
}

/// The endpoints that are switched off, including those that are not served here at all.
pub(crate) fn disabled(switches: Switches) -> Router {
    let mut router = Router::new();
    for (path, message) in disabled_paths(switches) {
        let refuse =
            move || async move { (StatusCode::METHOD_NOT_ALLOWED, format!("{message}\n")) };
        router = router.route(path, any(refuse));
        if path.ends_with('/') {
            router = router.route(&format!("{path}{{*rest}}"), any(refuse));
        }
    }
    router
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    const ON: Switches = Switches {
        debugging: true,
        system_logs: true,
        debug_flags: true,
        profiling: true,
        checkpoints: true,
    };

    async fn get(switches: Switches, method: &str, path: &str) -> (u16, String) {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).unwrap();
        let response = disabled(switches).oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1000).await.unwrap();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn disabled_endpoints_answer_as_upstream() {
        let no_debugging = Switches {
            debugging: false,
            ..ON
        };
        for (method, path) in [
            ("GET", "/containerLogs/default/web/main"),
            ("GET", "/runningpods/"),
            ("POST", "/exec/default/web/main"),
            ("GET", "/attach/default/web/uid/main"),
            ("POST", "/portForward/default/web"),
            ("POST", "/run/default/web/main"),
            ("GET", "/logs/"),
            ("GET", "/debug/pprof/heap"),
        ] {
            let expected = (405, "Debug endpoints are disabled.\n".to_owned());
            assert_eq!(get(no_debugging, method, path).await, expected, "{path}");
            assert_eq!(get(ON, method, path).await.0, 404, "{path}");
        }
        for (switches, path, message) in [
            (
                Switches {
                    system_logs: false,
                    ..ON
                },
                "/logs/syslog",
                "logs endpoint is disabled.\n",
            ),
            (
                Switches {
                    debug_flags: false,
                    ..ON
                },
                "/debug/flags/v",
                "flags endpoint is disabled.\n",
            ),
            (
                Switches {
                    profiling: false,
                    ..ON
                },
                "/debug/pprof/profile",
                "profiling endpoint is disabled.\n",
            ),
        ] {
            assert_eq!(get(switches, "GET", path).await, (405, message.to_owned()));
        }
    }
}
