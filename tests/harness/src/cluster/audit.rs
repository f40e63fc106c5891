use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::error::{HarnessError, file};

/// A node's request, from the API server's audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// User name: `system:node:NAME`.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `patch`, `update` or `delete`.
    pub verb: String,
    /// Resource: `pods` or `pods/status`.
    pub resource: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Object name; empty for lists.
    pub name: String,
    /// HTTP status code.
    pub code: u64,
    /// Time of receipt, RFC 3339 with microseconds.
    pub at: String,
}

impl AuditEvent {
    /// Verb, resource and name on one line.
    pub fn line(&self) -> String {
        format!(
            "{} {} {}/{} {}",
            self.verb, self.resource, self.namespace, self.name, self.code
        )
    }
}

/// Requests in the log from byte `from` on, each once, and the log's current end.
pub(super) fn read(path: &Path, from: u64) -> Result<(Vec<AuditEvent>, u64), HarnessError> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        read => file("read", path, read)?,
    };
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let new = bytes.get(from..).unwrap_or_default();
    // An incomplete last line is read by the next call.
    let end = new
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let mut seen = BTreeSet::new();
    let mut requests = Vec::new();
    for line in new
        .get(..end)
        .unwrap_or_default()
        .split(|byte| *byte == b'\n')
    {
        let Ok(event) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        // Watches are logged at their beginning and at their end.
        if seen.insert(text(&event["auditID"])) {
            requests.push(request(&event));
        }
    }
    Ok((requests, (from + end) as u64))
}

fn request(event: &Value) -> AuditEvent {
    let object = &event["objectRef"];
    let mut resource = text(&object["resource"]);
    let part = text(&object["subresource"]);
    if !part.is_empty() {
        resource = format!("{resource}/{part}");
    }
    AuditEvent {
        user: text(&event["user"]["username"]),
        verb: text(&event["verb"]),
        resource,
        namespace: text(&object["namespace"]),
        name: text(&object["name"]),
        code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
        at: text(&event["requestReceivedTimestamp"]),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::read;

    #[test]
    fn each_request_once_and_only_whole_lines() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("audit.log");
        assert_eq!(read(&path, 0).expect("none").0, Vec::new());
        let line = |id: &str, stage: &str| {
            format!(
                "{{\"auditID\":\"{id}\",\"stage\":\"{stage}\",\"verb\":\"watch\",\
                 \"objectRef\":{{\"resource\":\"pods\",\"subresource\":\"status\"}}}}\n"
            )
        };
        let begun = line("a", "ResponseStarted");
        let whole = format!("{begun}{}", line("a", "ResponseComplete"));
        fs::write(&path, format!("{whole}{{\"auditID\":\"b\"")).expect("written");
        let (requests, end) = read(&path, 0).expect("read");
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0].resource, "pods/status");
        assert_eq!(end, whole.len() as u64);
    }
}
