use jiff::Timestamp;
use polylet_kit::Config;
use polylet_wire::podconfig::v1::{PodSource, Problem};
use polylet_wire::supervisor::v1::supervisor_service_client::SupervisorServiceClient;
use polylet_wire::supervisor::v1::{ListServicesRequest, ServiceStatus};
use serde_json::{Value, json};

use super::pods::problems;

use crate::cli::Output;
use crate::client::{self, AskError};
use crate::core::{pods::seconds_since, text};

/// Shows the services.
pub(crate) async fn show(config: &Config, output: Output) -> Result<(), AskError> {
    let mut supervisor = SupervisorServiceClient::new(client::connect(config, "supervisor")?);
    let list = supervisor.list_services(ListServicesRequest {});
    let services = client::within("supervisor", list).await?.services;
    if output == Output::Json {
        let list: Vec<Value> = services.iter().map(as_json).collect();
        super::json(&json!({"node": config.polylet.node_name, "services": list}));
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
    super::print(&text::table(&rows));
    for away in problems(config).await.iter().filter(|it| is_away(it)) {
        super::print(&format!("\n{} {}\n", away.origin, away.message));
    }
    Ok(())
}

/// Not one pod is refused, but their source does not answer.
fn is_away(problem: &Problem) -> bool {
    problem.source() == PodSource::Api && problem.field.is_empty()
}

fn row(service: &ServiceStatus, now: Timestamp) -> Vec<String> {
    let or_dash = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
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

/// "in step", or who is behind.
fn peers(service: &ServiceStatus) -> String {
    let behind: Vec<&str> = service
        .peers
        .iter()
        .filter(|peer| !peer.synced)
        .map(|peer| peer.service.as_str())
        .collect();
    match (service.peers.is_empty(), behind.is_empty()) {
        (true, _) => "-".to_owned(),
        (false, true) => "in step".to_owned(),
        (false, false) => format!("behind: {}", behind.join(", ")),
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
                "lastHeardAt": client::time(peer.last_heard_at.as_ref()),
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
        "lastExit": service.last_exit,
    })
}
