//! Creates, changes and deletes pods at random until it is dropped.

use std::time::Duration;

use polylet_harness::Cluster;
use polylet_harness::cluster::Patch;
use polylet_harness::error::report;
use polylet_vm::node::MANIFESTS;
use polylet_vm::{Guest, VmError};
use serde_json::{Value, json};

use crate::pods::{self, CONFIG_MAP, KIND};

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// Pods that may exist at a time, those of Jobs aside. An emulated machine takes seconds to start one,
/// and all that run are started again after each power cut.
const MOST_PODS: usize = 6;

/// The churn's objects and choices.
pub(crate) struct Churn<'a> {
    cluster: &'a Cluster,
    /// Port of the execution counter.
    port: u16,
    random: fastrand::Rng,
    created: usize,
    static_pods: Vec<String>,
    /// Number of changes that were made.
    pub(crate) changes: usize,
}

impl<'a> Churn<'a> {
    pub(crate) fn new(cluster: &'a Cluster, port: u16, random: fastrand::Rng) -> Self {
        Self {
            cluster,
            port,
            random,
            created: 0,
            static_pods: Vec::new(),
            changes: 0,
        }
    }

    /// Creates what every round starts with.
    pub(crate) async fn begin(&mut self) -> Result<(), VmError> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": CONFIG_MAP },
            "data": { "key": pods::config_value(0) },
        });
        self.cluster.client().create(CONFIG_MAPS, &object).await?;
        Ok(())
    }

    /// Names of the static pods whose manifests are in the machine, and on its disk.
    pub(crate) fn static_pods(&self) -> &[String] {
        &self.static_pods
    }

    /// Makes changes until it is dropped, or the machine does not respond.
    pub(crate) async fn run(&mut self, guest: &Guest) -> VmError {
        loop {
            if let Err(error) = self.change(guest).await {
                match error {
                    // Deleted meanwhile, or changed.
                    VmError::Harness(refused) => eprintln!("churn: {}", report(&refused)),
                    broken => return broken,
                }
            }
            self.changes += 1;
            let pause = self.random.u64(100..1200);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn change(&mut self, guest: &Guest) -> Result<(), VmError> {
        let existing = self.existing().await?;
        let is_full = existing.len() >= MOST_PODS;
        match self.random.u8(..20) {
            0..=5 if !is_full => self.create_once().await,
            6..=8 if !is_full => {
                let name = self.name("serving");
                self.create_pod(&pods::serving(&name, self.port)).await
            }
            9 if !is_full => {
                let (name, seconds) = (self.name("restarting"), self.random.u8(2..10));
                let pod = pods::restarting(&name, self.port, seconds);
                self.create_pod(&pod).await
            }
            10 | 11 if !is_full => {
                let name = self.name("job");
                let job = pods::job(&name, self.port);
                self.cluster.client().create(JOBS, &job).await?;
                Ok(())
            }
            12 | 13 => self.change_static_pods(guest).await,
            14 | 15 => self.update_config_map().await,
            16 => self.delete_job().await,
            _ => self.delete_pod(&existing).await,
        }
    }

    fn name(&mut self, kind: &str) -> String {
        self.created += 1;
        format!("{kind}-{}", self.created)
    }

    async fn create_once(&mut self) -> Result<(), VmError> {
        let name = self.name("once");
        let (seconds, code) = (self.random.u8(..6), self.random.u8(..2));
        let pod = pods::once(&name, self.port, seconds, code);
        self.create_pod(&pod).await
    }

    async fn create_pod(&self, pod: &Value) -> Result<(), VmError> {
        self.cluster.client().create(PODS, pod).await?;
        Ok(())
    }

    /// Pods that are not being deleted, without mirrors.
    async fn existing(&self) -> Result<Vec<Value>, VmError> {
        let path = format!("{PODS}?labelSelector={KIND}");
        let list = self.cluster.client().get(&path).await?.unwrap_or_default();
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        let is_live = |pod: &Value| {
            pod["metadata"]["deletionTimestamp"].is_null()
                && pod["metadata"]["labels"][KIND] != "static"
        };
        Ok(pods.into_iter().filter(is_live).collect())
    }

    async fn delete_pod(&mut self, existing: &[Value]) -> Result<(), VmError> {
        if existing.is_empty() {
            return Ok(());
        }
        let pod = &existing[self.random.usize(..existing.len())];
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        self.delete(&format!("{PODS}/{name}")).await
    }

    async fn delete_job(&mut self) -> Result<(), VmError> {
        let list = self.cluster.client().get(JOBS).await?.unwrap_or_default();
        let jobs = list["items"].as_array().cloned().unwrap_or_default();
        match jobs
            .first()
            .and_then(|job| job["metadata"]["name"].as_str())
        {
            Some(name) => self.delete(&format!("{JOBS}/{name}")).await,
            None => Ok(()),
        }
    }

    async fn delete(&self, path: &str) -> Result<(), VmError> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        });
        self.cluster.client().delete(path, &options).await?;
        Ok(())
    }

    async fn update_config_map(&mut self) -> Result<(), VmError> {
        let change = json!({ "data": { "key": pods::config_value(self.changes) } });
        let path = format!("{CONFIG_MAPS}/{CONFIG_MAP}");
        self.cluster
            .client()
            .patch(&path, Patch::Merge, &change)
            .await?;
        Ok(())
    }

    /// Adds or removes a manifest. It is on disk before it counts: a machine that loses it has lost
    /// what its user wrote, which is not the node's fault.
    async fn change_static_pods(&mut self, guest: &Guest) -> Result<(), VmError> {
        if self.static_pods.len() < 2 {
            let name = self.name("static");
            let manifest = pods::static_pod(&name).to_string();
            let written = guest.write(&format!("/root/{name}.json"), &manifest).await;
            written?;
            let install = format!(
                "sync /root/{name}.json; mv /root/{name}.json {MANIFESTS}/; sync {MANIFESTS}"
            );
            // From here on either may be on the disk.
            self.static_pods.push(name);
            guest.sh(&install).await?;
        } else {
            let name = self.static_pods.first().cloned().unwrap_or_default();
            guest
                .sh(&format!("rm {MANIFESTS}/{name}.json; sync {MANIFESTS}"))
                .await?;
            self.static_pods.retain(|known| *known != name);
        }
        Ok(())
    }

    /// After a power cut: the manifests that are on the disk.
    pub(crate) async fn read_static_pods(&mut self, guest: &Guest) -> Result<(), VmError> {
        let names = guest.sh(&format!("ls {MANIFESTS}")).await?;
        let names = names.lines().filter_map(|name| name.strip_suffix(".json"));
        self.static_pods = names.map(str::to_owned).collect();
        Ok(())
    }
}
