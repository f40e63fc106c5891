//! `polylet status`.

use jiff::Timestamp;
use polylet_kit::Config;
use polylet_wire::podconfig::v1::{ManifestError, PodSource};
use polylet_wire::supervisor::v1::supervisor_service_client::SupervisorServiceClient;
use polylet_wire::supervisor::v1::{ListServicesRequest, ListServicesResponse, ServiceStatus};
use serde_json::{Value, json};

use super::pods::manifest_errors;
use crate::args::OutputFormat;
use crate::client::{self, ClientError};
use crate::core::{pods::seconds_since, text};

/// Prints the services.
pub(crate) async fn show(config: &Config, output: OutputFormat) -> Result<(), ClientError> {
    let supervisor = SupervisorServiceClient::new(client::connect(config, "supervisor")?);
    let list = || {
        let mut supervisor = supervisor.clone();
        async move { supervisor.list_services(ListServicesRequest {}).await }
    };
    let ListServicesResponse {
        services,
        node_name: running_as,
    } = client::read("supervisor", list).await?;
    // The supervisor's flags may name the node. One of an older version does not report it.
    let node = if running_as.is_empty() {
        &config.polylet.node_name
    } else {
        &running_as
    };
    if output == OutputFormat::Json {
        let list: Vec<Value> = services.iter().map(as_json).collect();
        super::json(&json!({"node": node, "services": list}));
        return Ok(());
    }
    let titles = [
        "SERVICE",
        "PID",
        "VERSION",
        "HEALTH",
        "RESTARTS",
        "MEMORY",
        "UP",
        "PEERS",
        "LAST EXIT",
    ];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(
        services
            .iter()
            .map(|service| row(service, Timestamp::now())),
    );
    super::print(&format!("Node: {node}\n\n"));
    super::print(&text::table(&rows));
    let conditions = conditions(&services, Timestamp::now());
    if conditions.len() > 1 {
        super::print(&format!("\n{}", text::table(&conditions)));
    }
    let errors = manifest_errors(config).await;
    for error in errors.iter().filter(|error| is_source_error(error)) {
        super::print(&format!("\n{} {}\n", error.origin, error.message));
    }
    Ok(())
}

/// Whether the API server is unavailable, rather than one pod invalid.
fn is_source_error(error: &ManifestError) -> bool {
    error.source() == PodSource::Api && error.field.is_empty()
}

fn or_dash(text: String) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

fn row(service: &ServiceStatus, now: Timestamp) -> Vec<String> {
    let started = polylet_wire::time::from_wire_opt(service.started_at.as_ref());
    let memory = match service.memory_bytes {
        0 => String::new(),
        bytes => text::mebibytes(bytes),
    };
    let pid = if service.pid == 0 {
        String::new()
    } else {
        service.pid.to_string()
    };
    [
        service.service.clone(),
        or_dash(pid),
        or_dash(service.version.clone()),
        service.health.clone(),
        service.restarts.to_string(),
        or_dash(memory),
        or_dash(
            started
                .map(|at| text::age(seconds_since(at, now)))
                .unwrap_or_default(),
        ),
        peers(service),
        service.last_exit.clone(),
    ]
    .into()
}

/// The rows of all services' conditions, with their titles.
fn conditions(services: &[ServiceStatus], now: Timestamp) -> Vec<Vec<String>> {
    let titles = ["CONDITION", "SERVICE", "FOR", "OBJECT", "MESSAGE"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for service in services {
        rows.extend(service.conditions.iter().map(|condition| {
            let since = polylet_wire::time::from_wire_opt(condition.since.as_ref());
            let age = since.map(|at| text::age(seconds_since(at, now)));
            vec![
                condition.reason.clone(),
                service.service.clone(),
                or_dash(age.unwrap_or_default()),
                or_dash(condition.object.clone()),
                condition.message.clone(),
            ]
        }));
    }
    rows
}

/// "synced", or the peers that have not synced.
fn peers(service: &ServiceStatus) -> String {
    let unsynced: Vec<&str> = service
        .peers
        .iter()
        .filter(|peer| !peer.synced)
        .map(|peer| peer.service.as_str())
        .collect();
    match (service.peers.is_empty(), unsynced.is_empty()) {
        (true, _) => "-".to_owned(),
        (false, true) => "synced".to_owned(),
        (false, false) => format!("not synced: {}", unsynced.join(", ")),
    }
}

fn as_json(service: &ServiceStatus) -> Value {
    let peers: Vec<Value> = service
        .peers
        .iter()
        .map(|peer| {
            json!({
                "service": peer.service,
                "synced": peer.synced,
                "incarnation": peer.incarnation,
                "lastReceivedAt": client::time(peer.last_received_at.as_ref()),
            })
        })
        .collect();
    let conditions: Vec<Value> = service
        .conditions
        .iter()
        .map(|condition| {
            json!({
                "reason": condition.reason,
                "object": condition.object,
                "message": condition.message,
                "since": client::time(condition.since.as_ref()),
            })
        })
        .collect();
    json!({
        "service": service.service,
        "version": service.version,
        "health": service.health,
        "pid": service.pid,
        "restarts": service.restarts,
        "memoryBytes": service.memory_bytes,
        "startedAt": client::time(service.started_at.as_ref()),
        "peers": peers,
        "conditions": conditions,
        "lastExit": service.last_exit,
    })
}
