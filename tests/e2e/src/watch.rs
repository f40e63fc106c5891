use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polylet_harness::{Node, PodView};
use polylet_wire::status::v1::WatchPodStatusesRequest;
use polylet_wire::status::v1::status_service_client::StatusServiceClient;
use polylet_wire::status::v1::watch_pod_statuses_response::Change;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

/// Follows the pods' statuses, through restarts of the reporter too, and keeps each version of
/// each pod in order.
#[derive(Debug)]
pub struct Watch {
    versions: Arc<Mutex<BTreeMap<String, Vec<PodView>>>>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Follows from now on.
    pub fn start(node: &Node) -> Self {
        let channel = crate::ok(node.channel("status-reporter"));
        let versions = Arc::new(Mutex::new(BTreeMap::new()));
        let task = tokio::spawn(follow(channel, Arc::clone(&versions)));
        Self { versions, task }
    }

    /// What was seen of a pod since the last call.
    pub fn take(&self, name: &str) -> Vec<PodView> {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions.remove(name).unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(channel: Channel, versions: Arc<Mutex<BTreeMap<String, Vec<PodView>>>>) {
    let mut client = StatusServiceClient::new(channel).max_decoding_message_size(64 << 20);
    loop {
        if let Ok(answer) = client
            .watch_pod_statuses(WatchPodStatusesRequest::default())
            .await
        {
            let mut stream = answer.into_inner();
            while let Ok(Some(message)) = stream.message().await {
                if let Some(Change::Upsert(pod)) = message.change {
                    let pod = crate::ok(PodView::from_wire(&pod));
                    let mut versions = versions.lock().unwrap_or_else(PoisonError::into_inner);
                    versions.entry(pod.name.clone()).or_default().push(pod);
                }
            }
        }
        // The reporter is being restarted.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
