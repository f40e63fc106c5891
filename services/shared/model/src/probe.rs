//! Probes: which a container has, and what each field means when it is unset.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerPort, HTTPGetAction, HTTPHeader, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::pod::ContainerKind;

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Holds the other two back until the container has started.
    Startup,
    /// Restarts a container that hangs.
    Liveness,
    /// Keeps traffic from a container that cannot serve.
    Readiness,
}

impl ProbeKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// The kind's name as events and metrics write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// How a probe asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Runs a command in the container.
    Exec {
        /// The command, not yet expanded.
        command: Vec<String>,
    },
    /// Asks over HTTP.
    HttpGet {
        /// Absent: the pod's address.
        host: Option<String>,
        /// Resolved by [`port_number`].
        port: IntOrString,
        /// Begins with a slash.
        path: String,
        /// Over TLS, without checking the certificate.
        https: bool,
        /// In their order; one name may stand more than once.
        headers: Vec<(String, String)>,
    },
    /// Opens a connection.
    TcpSocket {
        /// Absent: the pod's address.
        host: Option<String>,
        /// Resolved by [`port_number`].
        port: IntOrString,
    },
    /// Asks grpc.health.v1 at the pod's address.
    Grpc {
        /// A number, never a name.
        port: i32,
        /// The service asked for; empty for the server as a whole.
        service: String,
    },
}

/// One probe with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// What it is for.
    pub kind: ProbeKind,
    /// How it asks.
    pub action: Action,
    /// Not before the container ran this long.
    pub initial_delay: Duration,
    /// From one attempt to the next.
    pub period: Duration,
    /// For one attempt.
    pub timeout: Duration,
    /// Successes in a row that make a verdict.
    pub success_threshold: u32,
    /// Failures in a row that make a verdict.
    pub failure_threshold: u32,
    /// Grace period of the stop that its failure brings about.
    pub termination_grace: Option<Duration>,
}

impl ProbeSpec {
    /// Reads one probe; `None` when it has no handler that this build knows.
    pub fn new(kind: ProbeKind, probe: &Probe) -> Option<Self> {
        // Zero is what an unset field looks like on old objects: upstream defaults it as well.
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
            action: action(probe)?,
            initial_delay: seconds(or(probe.initial_delay_seconds, 0)),
            period: seconds(or(probe.period_seconds, 10)),
            timeout: seconds(or(probe.timeout_seconds, 1)),
            success_threshold: match kind {
                ProbeKind::Readiness => or(probe.success_threshold, 1),
                // Validation allows nothing else: one success is the end of the matter.
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

fn action(probe: &Probe) -> Option<Action> {
    if let Some(exec) = &probe.exec {
        return Some(Action::Exec {
            command: exec.command.clone().unwrap_or_default(),
        });
    }
    if let Some(http) = &probe.http_get {
        return Some(http_action(http));
    }
    if let Some(tcp) = &probe.tcp_socket {
        return Some(Action::TcpSocket {
            host: given(tcp.host.as_ref()),
            port: tcp.port.clone(),
        });
    }
    let grpc = probe.grpc.as_ref()?;
    Some(Action::Grpc {
        port: grpc.port,
        service: grpc.service.clone().unwrap_or_default(),
    })
}

/// Reads what is asked for over HTTP, of a probe or a hook.
pub fn http_action(http: &HTTPGetAction) -> Action {
    let path = http.path.as_deref().unwrap_or_default();
    let headers = http.http_headers.iter().flatten();
    Action::HttpGet {
        host: given(http.host.as_ref()),
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

fn given(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

/// A port by number, by the name of one of the container's ports, or a number
/// written as text; `None` when it is none of these or out of 1..=65535.
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

/// The API's own probe of one kind.
pub fn raw(container: &Container, kind: ProbeKind) -> Option<&Probe> {
    match kind {
        ProbeKind::Startup => container.startup_probe.as_ref(),
        ProbeKind::Liveness => container.liveness_probe.as_ref(),
        ProbeKind::Readiness => container.readiness_probe.as_ref(),
    }
}

/// Whether containers that play this part are probed at all.
pub fn is_probed(kind: ContainerKind) -> bool {
    matches!(kind, ContainerKind::Regular | ContainerKind::Sidecar)
}

/// A container's probe of one kind; none for plain init and ephemeral containers.
pub fn of(part: ContainerKind, container: &Container, kind: ProbeKind) -> Option<ProbeSpec> {
    if !is_probed(part) {
        return None;
    }
    ProbeSpec::new(kind, raw(container, kind)?)
}

/// All probes of a container.
pub fn all(part: ContainerKind, container: &Container) -> Vec<ProbeSpec> {
    ProbeKind::ALL
        .into_iter()
        .filter_map(|kind| of(part, container, kind))
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
    fn unset_fields_have_upstreams_defaults() {
        let spec = ProbeSpec::new(
            ProbeKind::Readiness,
            &probe(json!({"httpGet": {"port": "web"}})),
        )
        .unwrap();
        assert_eq!(spec.initial_delay, Duration::ZERO);
        assert_eq!(spec.period, Duration::from_secs(10));
        assert_eq!(spec.timeout, Duration::from_secs(1));
        assert_eq!((spec.success_threshold, spec.failure_threshold), (1, 3));
        let Action::HttpGet {
            host, path, https, ..
        } = spec.action
        else {
            panic!("not HTTP")
        };
        assert_eq!((host, path.as_str(), https), (None, "/", false));
    }

    #[test]
    fn fields_that_a_kind_does_not_have_are_ignored() {
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
    fn negative_and_zero_numbers_fall_back() {
        let odd = probe(
            json!({"exec": {}, "periodSeconds": 0, "timeoutSeconds": -1, "initialDelaySeconds": -5}),
        );
        let spec = ProbeSpec::new(ProbeKind::Startup, &odd).unwrap();
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
    fn plain_init_and_ephemeral_containers_are_not_probed() {
        let container = Container {
            liveness_probe: Some(probe(json!({"exec": {}}))),
            ..Container::default()
        };
        assert_eq!(all(ContainerKind::Regular, &container).len(), 1);
        assert_eq!(all(ContainerKind::Sidecar, &container).len(), 1);
        assert!(all(ContainerKind::Init, &container).is_empty());
        assert!(all(ContainerKind::Ephemeral, &container).is_empty());
        assert!(ProbeSpec::new(ProbeKind::Liveness, &Probe::default()).is_none());
    }
}
