//! Where a fault must be named.

use polylet_e2e::ok;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, HarnessError, Node};
use serde_json::Value;

/// What `polylet status` and the events of pods must show.
#[derive(Clone, Default)]
pub(crate) struct Evidence {
    /// Reason and part of the object of health conditions.
    conditions: Vec<(&'static str, &'static str)>,
    /// Pod, reason and part of the message of events.
    events: Vec<(&'static str, &'static str, &'static str)>,
    /// A pod and the least number of inodes that its statistics show.
    inodes: Option<(&'static str, usize)>,
}

impl Evidence {
    pub(crate) fn condition(mut self, reason: &'static str, object: &'static str) -> Self {
        self.conditions.push((reason, object));
        self
    }

    pub(crate) fn event(
        mut self,
        pod: &'static str,
        reason: &'static str,
        message: &'static str,
    ) -> Self {
        self.events.push((pod, reason, message));
        self
    }

    pub(crate) fn inodes(self, pod: &'static str, count: usize) -> Self {
        Self {
            inodes: Some((pod, count)),
            ..self
        }
    }

    /// Waits for all of it.
    pub(crate) async fn wait(&self, cluster: &Cluster, node: &Node) {
        for (reason, object) in &self.conditions {
            wait_for_condition(node, reason, object).await;
        }
        for (pod, reason, message) in &self.events {
            wait_for_event(cluster, pod, reason, message).await;
        }
        if let Some((pod, count)) = self.inodes {
            // They are counted once a minute, perhaps while they were made.
            let mut counted = wait_for_inodes(cluster, pod, count).await;
            if counted.is_err() {
                counted = wait_for_inodes(cluster, pod, count).await;
            }
            ok(counted);
        }
    }
}

/// The conditions of all services: reason, object and message.
async fn conditions(node: &Node) -> Result<Vec<[String; 3]>, String> {
    let output = node.cli(&["status", "-o", "json"]).await;
    let output = output.map_err(|error| polylet_harness::error::report(&error))?;
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let Some(services) = status["services"].as_array() else {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    };
    let all = services.iter().flat_map(|service| {
        let conditions = service["conditions"].as_array();
        conditions.cloned().unwrap_or_default()
    });
    let text = |condition: &Value, field: &str| condition[field].as_str().map(str::to_owned);
    let rows = all.map(|one| {
        ["reason", "object", "message"].map(|field| text(&one, field).unwrap_or_default())
    });
    Ok(rows.collect())
}

async fn wait_for_condition(node: &Node, reason: &str, object: &str) {
    let what = format!("a condition {reason} of {object:?}");
    ok(until(what, || async {
        let all = match conditions(node).await {
            Ok(all) => all,
            Err(error) => return Poll::Pending(error),
        };
        let is_it = |one: &&[String; 3]| one[0].contains(reason) && one[1].contains(object);
        match all.iter().find(is_it) {
            Some([reason, object, message]) => {
                println!("  status: {reason} {object}: {message}");
                Poll::Ready(())
            }
            None => Poll::Pending(format!("{all:?}")),
        }
    })
    .await);
}

/// Waits until nothing is wrong.
pub(crate) async fn wait_for_no_condition(node: &Node) {
    ok(until("no condition", || async {
        match conditions(node).await {
            Ok(all) if all.is_empty() => Poll::Ready(()),
            Ok(all) => Poll::Pending(format!("{all:?}")),
            Err(error) => Poll::Pending(error),
        }
    })
    .await);
}

async fn wait_for_event(cluster: &Cluster, pod: &str, reason: &str, message: &str) {
    let path =
        format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{pod}");
    ok(
        until(format!("an event {reason} of {pod}: {message}"), || async {
            let list = cluster.client().get(&path).await;
            let list = list.ok().flatten().unwrap_or_default();
            let events = list["items"].as_array().cloned().unwrap_or_default();
            let text = |event: &Value, field: &str| event[field].as_str().unwrap_or("").to_owned();
            let rows: Vec<[String; 2]> = events
                .iter()
                .map(|event| ["reason", "message"].map(|field| text(event, field)))
                .collect();
            let is_it = |one: &&[String; 2]| one[0] == reason && one[1].contains(message);
            match rows.iter().find(is_it) {
                Some([reason, message]) => {
                    println!("  event of {pod}: {reason}: {message}");
                    Poll::Ready(())
                }
                None => Poll::Pending(format!("{rows:?}")),
            }
        })
        .await,
    );
}

async fn wait_for_inodes(cluster: &Cluster, pod: &str, count: usize) -> Result<(), HarnessError> {
    let path = "/api/v1/nodes/node/proxy/stats/summary";
    until(format!("{count} inodes of {pod}"), || async {
        let summary = cluster.client().get(path).await;
        let summary = summary.ok().flatten().unwrap_or_default();
        let pods = summary["pods"].as_array().cloned().unwrap_or_default();
        let of_pod = pods.iter().find(|one| one["podRef"]["name"] == pod);
        let inodes = of_pod.and_then(|one| one["ephemeral-storage"]["inodesUsed"].as_u64());
        match inodes {
            Some(inodes) if inodes >= count as u64 => {
                println!("  statistics of {pod}: {inodes} inodes");
                Poll::Ready(())
            }
            other => Poll::Pending(format!("{other:?}")),
        }
    })
    .await
}
