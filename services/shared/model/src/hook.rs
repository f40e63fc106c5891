//! Lifecycle hooks, with all defaults applied.

use k8s_openapi::api::core::v1::{Container, ContainerPort, LifecycleHandler};

use crate::probe::{self, ProbeHandler};

/// The action of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Runs a command in the container, without expanding variables in it.
    Exec {
        /// The command.
        command: Vec<String>,
    },
    /// Sends an HTTP GET request; any response is a success.
    Http {
        /// The host; `None` for the pod's IP.
        host: Option<String>,
        /// The port.
        port: u16,
        /// Path and query.
        path: String,
        /// Whether to use TLS, without verifying the certificate.
        https: bool,
        /// In order; a name may occur more than once.
        headers: Vec<(String, String)>,
    },
    /// Waits for a duration.
    Sleep {
        /// May be zero.
        seconds: u64,
    },
    /// The handler is invalid.
    Invalid {
        /// The error message, in the kubelet's words.
        message: String,
    },
}

impl Hook {
    /// Converts a handler; port names are resolved among the container's ports.
    pub fn new(handler: &LifecycleHandler, ports: &[ContainerPort]) -> Self {
        if let Some(exec) = &handler.exec {
            let command = exec.command.clone().unwrap_or_default();
            return Hook::Exec { command };
        }
        if let Some(get) = &handler.http_get {
            let Some(number) = probe::port_number(&get.port, ports) else {
                let message = format!("couldn't find port: {}", port_text(&get.port));
                return Hook::Invalid { message };
            };
            let ProbeHandler::HttpGet {
                host,
                path,
                https,
                headers,
                ..
            } = probe::http_get_handler(get)
            else {
                return Hook::Invalid {
                    message: "invalid handler".to_owned(),
                };
            };
            return Hook::Http {
                host,
                port: number,
                path,
                https,
                headers,
            };
        }
        if let Some(sleep) = &handler.sleep {
            let seconds = u64::try_from(sleep.seconds).unwrap_or(0);
            return Hook::Sleep { seconds };
        }
        Hook::Invalid {
            message: "invalid handler".to_owned(),
        }
    }

    /// A container's postStart hook.
    pub fn post_start(container: &Container) -> Option<Self> {
        let handler = container.lifecycle.as_ref()?.post_start.as_ref()?;
        Some(Hook::new(handler, ports(container)))
    }

    /// A container's preStop hook.
    pub fn pre_stop(container: &Container) -> Option<Self> {
        let handler = container.lifecycle.as_ref()?.pre_stop.as_ref()?;
        Some(Hook::new(handler, ports(container)))
    }

    /// A preStop hook from the annotations of its container: handler and ports as JSON.
    pub fn from_annotations(handler: &str, ports: Option<&str>) -> Option<Self> {
        let handler: LifecycleHandler = serde_json::from_str(handler).ok()?;
        let ports: Vec<ContainerPort> = ports
            .and_then(|ports| serde_json::from_str(ports).ok())
            .unwrap_or_default();
        Some(Hook::new(&handler, &ports))
    }
}

fn ports(container: &Container) -> &[ContainerPort] {
    container.ports.as_deref().unwrap_or_default()
}

fn port_text(port: &k8s_openapi::apimachinery::pkg::util::intstr::IntOrString) -> String {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn hook(handler: Value) -> Hook {
        let container = json!({"name": "c", "ports": [{"name": "web", "containerPort": 8080}],
            "lifecycle": {"preStop": handler}});
        let container: Container = serde_json::from_value(container).unwrap();
        Hook::pre_stop(&container).unwrap()
    }

    #[test]
    fn all_kinds_of_handlers() {
        let command = vec!["sh".to_owned(), "-c".to_owned(), "$(A)".to_owned()];
        assert_eq!(
            hook(json!({"exec": {"command": command}})),
            Hook::Exec { command }
        );
        assert_eq!(
            hook(json!({"sleep": {"seconds": 0}})),
            Hook::Sleep { seconds: 0 }
        );
        let get = hook(
            json!({"httpGet": {"port": "web", "path": "bye?x", "scheme": "HTTPS",
            "httpHeaders": [{"name": "A", "value": "1"}]}}),
        );
        let expected = Hook::Http {
            host: None,
            port: 8080,
            path: "/bye?x".into(),
            https: true,
            headers: vec![("A".into(), "1".into())],
        };
        assert_eq!(get, expected);
        for invalid in [
            json!({"httpGet": {"port": "other"}}),
            json!({"httpGet": {"port": 0}}),
            json!({"tcpSocket": {"port": 1}}),
            json!({}),
        ] {
            assert!(matches!(hook(invalid), Hook::Invalid { .. }));
        }
    }

    #[test]
    fn hooks_from_annotations() {
        let handler = r#"{"httpGet":{"port":"web"}}"#;
        let ports = r#"[{"name":"web","containerPort":81}]"#;
        let found = Hook::from_annotations(handler, Some(ports));
        assert!(matches!(found, Some(Hook::Http { port: 81, .. })));
        assert_eq!(Hook::from_annotations("{", None), None);
    }

    proptest! {
        #[test]
        fn arbitrary_annotations_never_panic(handler in "\\PC*", ports in "\\PC*") {
            Hook::from_annotations(&handler, Some(&ports));
        }
    }
}
