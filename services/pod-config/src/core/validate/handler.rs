//! Validation of probes and lifecycle hooks.

use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, LifecycleHandler, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::decode::quoted;
use super::{ErrorList, names};

pub(super) fn probe(errors: &mut ErrorList, path: &str, kind: &str, probe: &Probe) {
    let given = [
        ("exec", probe.exec.is_some()),
        ("httpGet", probe.http_get.is_some()),
        ("tcpSocket", probe.tcp_socket.is_some()),
        ("grpc", probe.grpc.is_some()),
    ];
    errors.exactly_one(path, "handler", &given);
    if let Some(action) = &probe.exec {
        exec(errors, path, action);
    }
    if let Some(action) = &probe.http_get {
        http(errors, path, action);
    }
    if let Some(action) = &probe.tcp_socket {
        port(errors, &format!("{path}.tcpSocket.port"), &action.port);
    }
    if let Some(action) = &probe.grpc {
        errors.range(
            format!("{path}.grpc.port"),
            Some(i64::from(action.port)),
            1,
            65535,
        );
    }
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (name, number) in numbers {
        errors.range(format!("{path}.{name}"), number.map(i64::from), 0, i64::MAX);
    }
    if kind != "readinessProbe" && probe.success_threshold.is_some_and(|t| t > 1) {
        errors.add(
            format!("{path}.successThreshold"),
            format!("must be 1 for a {kind}"),
        );
    }
    if let Some(grace) = probe.termination_grace_period_seconds {
        if kind == "readinessProbe" {
            errors.add(
                format!("{path}.terminationGracePeriodSeconds"),
                "must not be set for a readinessProbe",
            );
        }
        errors.range(
            format!("{path}.terminationGracePeriodSeconds"),
            Some(grace),
            1,
            i64::MAX,
        );
    }
}

pub(super) fn hook(
    errors: &mut ErrorList,
    path: &str,
    hook: &LifecycleHandler,
    grace: Option<i64>,
) {
    let given = [
        ("exec", hook.exec.is_some()),
        ("httpGet", hook.http_get.is_some()),
        ("tcpSocket", hook.tcp_socket.is_some()),
        ("sleep", hook.sleep.is_some()),
    ];
    errors.exactly_one(path, "handler", &given);
    if let Some(action) = &hook.exec {
        exec(errors, path, action);
    }
    if let Some(action) = &hook.http_get {
        http(errors, path, action);
    }
    if let Some(action) = &hook.tcp_socket {
        port(errors, &format!("{path}.tcpSocket.port"), &action.port);
    }
    if let Some(sleep) = &hook.sleep {
        errors.range(
            format!("{path}.sleep.seconds"),
            Some(sleep.seconds),
            0,
            grace.unwrap_or(30).max(0),
        );
    }
}

fn exec(errors: &mut ErrorList, path: &str, action: &ExecAction) {
    if action.command.as_ref().is_none_or(Vec::is_empty) {
        errors.add(format!("{path}.exec.command"), "required");
    }
}

fn http(errors: &mut ErrorList, path: &str, action: &HTTPGetAction) {
    let path = format!("{path}.httpGet");
    errors.required(
        format!("{path}.path"),
        action.path.as_deref().unwrap_or("/"),
    );
    port(errors, &format!("{path}.port"), &action.port);
    errors.one_of(
        format!("{path}.scheme"),
        action.scheme.as_ref(),
        &["HTTP", "HTTPS"],
    );
    for (i, header) in action.http_headers.iter().flatten().enumerate() {
        errors.name(
            format!("{path}.httpHeaders[{i}].name"),
            &header.name,
            names::header,
        );
    }
}

fn port(errors: &mut ErrorList, path: &str, port: &IntOrString) {
    match port {
        IntOrString::Int(number) => errors.range(path, Some(i64::from(*number)), 1, 65535),
        IntOrString::String(name) => {
            if let Err(expected) = names::port(name) {
                errors.add(path, format!("{} is {expected}", quoted(name)));
            }
        }
    }
}
