//! Lifecycle hooks: what a handler asks for, with every default filled in.

use k8s_openapi::api::core::v1::{Container, ContainerPort, LifecycleHandler};

use crate::probe::{self, Action};

/// What a hook does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Runs a command in the container, as it stands: nothing in it is expanded.
    Exec {
        /// The command.
        command: Vec<String>,
    },
    /// Asks over HTTP; whatever the answer says is fine.
    Http {
        /// Absent: the pod's address.
        host: Option<String>,
        /// The port.
        port: u16,
        /// Path and query.
        path: String,
        /// Over TLS, without checking the certificate.
        https: bool,
        /// In their order; one name may stand more than once.
        headers: Vec<(String, String)>,
    },
    /// Waits.
    Sleep {
        /// So many seconds; zero is fine.
        seconds: u64,
    },
    /// Nothing that can be done.
    Impossible {
        /// Why.
        why: String,
    },
}

impl Hook {
    /// Reads a handler; ports by name are looked for among those of its container.
    pub fn new(handler: &LifecycleHandler, ports: &[ContainerPort]) -> Self {
        if let Some(exec) = &handler.exec {
            let command = exec.command.clone().unwrap_or_default();
            return Hook::Exec { command };
        }
        if let Some(get) = &handler.http_get {
            let Some(number) = probe::port_number(&get.port, ports) else {
                let why = format!("couldn't find port: {}", said(&get.port));
                return Hook::Impossible { why };
            };
            let Action::HttpGet {
                host,
                path,
                https,
                headers,
                ..
            } = probe::http_action(get)
            else {
                return Hook::Impossible {
                    why: "invalid handler".to_owned(),
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
        Hook::Impossible {
            why: "invalid handler".to_owned(),
        }
    }

    /// A container's hook after its start.
    pub fn post_start(container: &Container) -> Option<Self> {
        let handler = container.lifecycle.as_ref()?.post_start.as_ref()?;
        Some(Hook::new(handler, ports(container)))
    }

    /// A container's hook before it is stopped.
    pub fn pre_stop(container: &Container) -> Option<Self> {
        let handler = container.lifecycle.as_ref()?.pre_stop.as_ref()?;
        Some(Hook::new(handler, ports(container)))
    }

    /// A preStop hook out of what its container carries about itself: handler and ports as JSON.
    pub fn restored(handler: &str, ports: Option<&str>) -> Option<Self> {
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

fn said(port: &k8s_openapi::apimachinery::pkg::util::intstr::IntOrString) -> String {
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
    fn every_handler_is_read() {
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
        for impossible in [
            json!({"httpGet": {"port": "other"}}),
            json!({"httpGet": {"port": 0}}),
            json!({"tcpSocket": {"port": 1}}),
            json!({}),
        ] {
            assert!(matches!(hook(impossible), Hook::Impossible { .. }));
        }
    }

    #[test]
    fn a_hook_is_found_again_on_its_container() {
        let handler = r#"{"httpGet":{"port":"web"}}"#;
        let ports = r#"[{"name":"web","containerPort":81}]"#;
        let found = Hook::restored(handler, Some(ports));
        assert!(matches!(found, Some(Hook::Http { port: 81, .. })));
        assert_eq!(Hook::restored("{", None), None);
    }

    proptest! {
        #[test]
        fn foreign_annotations_do_no_harm(handler in "\\PC*", ports in "\\PC*") {
            Hook::restored(&handler, Some(&ports));
        }
    }
}
