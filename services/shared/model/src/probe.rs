//! Probes of containers, with all defaults applied.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerPort, HTTPGetAction, HTTPHeader, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::pod::ContainerKind;

/// The purpose of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProbeKind {
    /// The container has started; the other probes wait for it.
    Startup,
    /// The container works; it is restarted otherwise.
    Liveness,
    /// The container can serve; it gets no traffic otherwise.
    Readiness,
}

impl ProbeKind {
    /// All kinds, in the order in which they apply.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// The kind's name in events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// The check of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeHandler {
    /// Runs a command in the container.
    Exec {
        /// The command, not yet expanded.
        command: Vec<String>,
    },
    /// Sends an HTTP GET request.
    HttpGet {
        /// The host; `None` for the pod's IP.
        host: Option<String>,
        /// Resolved by [`port_number`].
        port: IntOrString,
        /// The path, with a leading slash, and the query.
        path: String,
        /// Whether to use TLS, without verifying the certificate.
        https: bool,
        /// In order; a name may occur more than once.
        headers: Vec<(String, String)>,
    },
    /// Opens a TCP connection.
    TcpSocket {
        /// The host; `None` for the pod's IP.
        host: Option<String>,
        /// Resolved by [`port_number`].
        port: IntOrString,
    },
    /// Calls `grpc.health.v1` at the pod's IP.
    Grpc {
        /// The port number.
        port: i32,
        /// The service to check; empty for the server as a whole.
        service: String,
    },
}

/// A probe with all defaults applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// The purpose.
    pub kind: ProbeKind,
    /// The check.
    pub handler: ProbeHandler,
    /// The time from the container's start to the first attempt.
    pub initial_delay: Duration,
    /// The time between attempts.
    pub period: Duration,
    /// The limit for an attempt.
    pub timeout: Duration,
    /// Successes in a row for the result to become success.
    pub success_threshold: u32,
    /// Failures in a row for the result to become failure.
    pub failure_threshold: u32,
    /// The grace period of the container when it is stopped because of this probe.
    pub termination_grace: Option<Duration>,
}

impl ProbeSpec {
    /// Converts a probe; `None` if it has no known handler.
    pub fn new(kind: ProbeKind, probe: &Probe) -> Option<Self> {
        // Unset fields are zero in old objects: upstream applies the default as well.
        let or = |value: Option<i32>, default: u32| match value.map(u32::try_from) {
            Some(Ok(value)) if value > 0 => value,
            _ => default,
        };
        let seconds = |value: u32| Duration::from_secs(u64::from(value));
        let grace = probe
            .termination_grace_period_seconds
            .and_then(|s| u64::try_from(s).ok());
        Some(Self {
            kind,
            handler: handler(probe)?,
            initial_delay: seconds(or(probe.initial_delay_seconds, 0)),
            period: seconds(or(probe.period_seconds, 10)),
            timeout: seconds(or(probe.timeout_seconds, 1)),
            success_threshold: match kind {
                ProbeKind::Readiness => or(probe.success_threshold, 1),
                // Validation allows no other value.
                ProbeKind::Startup | ProbeKind::Liveness => 1,
            },
            failure_threshold: or(probe.failure_threshold, 3),
            termination_grace: match kind {
                ProbeKind::Readiness => None,
                ProbeKind::Startup | ProbeKind::Liveness => grace.map(Duration::from_secs),
            },
        })
    }
}

fn handler(probe: &Probe) -> Option<ProbeHandler> {
    if let Some(exec) = &probe.exec {
        return Some(ProbeHandler::Exec {
            command: exec.command.clone().unwrap_or_default(),
        });
    }
    if let Some(http) = &probe.http_get {
        return Some(http_get_handler(http));
    }
    if let Some(tcp) = &probe.tcp_socket {
        return Some(ProbeHandler::TcpSocket {
            host: non_empty(tcp.host.as_ref()),
            port: tcp.port.clone(),
        });
    }
    let grpc = probe.grpc.as_ref()?;
    Some(ProbeHandler::Grpc {
        port: grpc.port,
        service: grpc.service.clone().unwrap_or_default(),
    })
}

/// Converts an HTTP GET action of a probe or a hook.
pub fn http_get_handler(http: &HTTPGetAction) -> ProbeHandler {
    let path = http.path.as_deref().unwrap_or_default();
    let headers = http.http_headers.iter().flatten();
    ProbeHandler::HttpGet {
        host: non_empty(http.host.as_ref()),
        port: http.port.clone(),
        path: if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        },
        https: http
            .scheme
            .as_deref()
            .is_some_and(|s| s.eq_ignore_ascii_case("https")),
        headers: headers
            .map(|HTTPHeader { name, value }| (name.clone(), value.clone()))
            .collect(),
    }
}

fn non_empty(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

/// Resolves a port: a number, the name of one of the container's ports, or a number as text. `None`
/// if the name is unknown or the number is not in 1..=65535.
pub fn port_number(port: &IntOrString, ports: &[ContainerPort]) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => ports
            .iter()
            .find(|p| p.name.as_deref() == Some(name))
            .map(|p| p.container_port)
            .or_else(|| name.parse().ok())?,
    };
    u16::try_from(number).ok().filter(|number| *number > 0)
}

/// A container's probe of one kind, as the API has it.
pub fn api_probe(container: &Container, kind: ProbeKind) -> Option<&Probe> {
    match kind {
        ProbeKind::Startup => container.startup_probe.as_ref(),
        ProbeKind::Liveness => container.liveness_probe.as_ref(),
        ProbeKind::Readiness => container.readiness_probe.as_ref(),
    }
}

/// Whether containers of this kind are probed.
pub fn is_probed(kind: ContainerKind) -> bool {
    matches!(kind, ContainerKind::Regular | ContainerKind::Sidecar)
}

/// A container's probe of one kind; `None` for init and ephemeral containers.
pub fn spec(
    container_kind: ContainerKind,
    container: &Container,
    kind: ProbeKind,
) -> Option<ProbeSpec> {
    if !is_probed(container_kind) {
        return None;
    }
    ProbeSpec::new(kind, api_probe(container, kind)?)
}

/// All probes of a container.
pub fn specs(container_kind: ContainerKind, container: &Container) -> Vec<ProbeSpec> {
    ProbeKind::ALL
        .into_iter()
        .filter_map(|kind| spec(container_kind, container, kind))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn probe(value: serde_json::Value) -> Probe {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn unset_fields_have_defaults() {
        let spec = ProbeSpec::new(
            ProbeKind::Readiness,
            &probe(json!({"httpGet": {"port": "web"}})),
        )
        .unwrap();
        assert_eq!(spec.initial_delay, Duration::ZERO);
        assert_eq!(spec.period, Duration::from_secs(10));
        assert_eq!(spec.timeout, Duration::from_secs(1));
        assert_eq!((spec.success_threshold, spec.failure_threshold), (1, 3));
        let ProbeHandler::HttpGet {
            host, path, https, ..
        } = spec.handler
        else {
            panic!("not HTTP")
        };
        assert_eq!((host, path.as_str(), https), (None, "/", false));
    }

    #[test]
    fn fields_of_other_kinds_are_ignored() {
        let full = probe(
            json!({"tcpSocket": {"port": 1}, "successThreshold": 5, "terminationGracePeriodSeconds": 7}),
        );
        let liveness = ProbeSpec::new(ProbeKind::Liveness, &full).unwrap();
        assert_eq!(
            (liveness.success_threshold, liveness.termination_grace),
            (1, Some(Duration::from_secs(7)))
        );
        let readiness = ProbeSpec::new(ProbeKind::Readiness, &full).unwrap();
        assert_eq!(
            (readiness.success_threshold, readiness.termination_grace),
            (5, None)
        );
    }

    #[test]
    fn zero_and_negative_numbers_have_defaults() {
        let zero = probe(
            json!({"exec": {}, "periodSeconds": 0, "timeoutSeconds": -1, "initialDelaySeconds": -5}),
        );
        let spec = ProbeSpec::new(ProbeKind::Startup, &zero).unwrap();
        assert_eq!(
            (
                spec.period.as_secs(),
                spec.timeout.as_secs(),
                spec.initial_delay.as_secs()
            ),
            (10, 1, 0)
        );
    }

    #[test]
    fn ports_by_number_and_name() {
        let ports = [ContainerPort {
            name: Some("web".into()),
            container_port: 80,
            ..Default::default()
        }];
        let named = |text: &str| IntOrString::String(text.into());
        assert_eq!(port_number(&named("web"), &ports), Some(80));
        assert_eq!(port_number(&named("8080"), &ports), Some(8080));
        assert_eq!(port_number(&named("other"), &ports), None);
        for (number, expected) in [
            (1, Some(1)),
            (65535, Some(65535)),
            (0, None),
            (65536, None),
            (-1, None),
        ] {
            assert_eq!(
                port_number(&IntOrString::Int(number), &ports),
                expected,
                "{number}"
            );
        }
    }

    #[test]
    fn init_and_ephemeral_containers_are_not_probed() {
        let container = Container {
            liveness_probe: Some(probe(json!({"exec": {}}))),
            ..Container::default()
        };
        assert_eq!(specs(ContainerKind::Regular, &container).len(), 1);
        assert_eq!(specs(ContainerKind::Sidecar, &container).len(), 1);
        assert!(specs(ContainerKind::Init, &container).is_empty());
        assert!(specs(ContainerKind::Ephemeral, &container).is_empty());
        assert!(ProbeSpec::new(ProbeKind::Liveness, &Probe::default()).is_none());
    }
}
