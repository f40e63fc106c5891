//! Commands, logs and forwarded ports through the node API of both agents, and by the runtime's own server.

use std::time::{Duration, Instant};

use futures::StreamExt;
use polylet_harness::{HarnessError, any_server};
use serde_json::{Value, json};

use self::client::{ByteStream, Endpoint, http_error};
use self::runtime::RuntimeStreams;
use super::agent::Agent;
use super::{Bench, SETTLE, manifest};
use crate::idle;
use crate::manifests::ManifestKind;
use crate::measure::Samples;

/// Connections to a server.
mod client;
/// The streams that agents pass on.
mod runtime;

/// What a forwarded connection carries, in MiB.
const FORWARDED_MIB: u64 = 256;
const PORT: u16 = 9000;
/// How often that is measured: the rate of a busy machine varies.
const TRANSFERS: usize = 9;

/// Connections that follow one log.
const FOLLOWERS: usize = 200;

/// The channels of the protocol.
const STATUS_CHANNEL: u8 = 3;
const DATA_CHANNEL: u8 = 0;
const ERROR_CHANNEL: u8 = 1;

/// One of the two agents, with what its pod is known by.
struct StreamTarget {
    endpoint: Endpoint,
    pod: String,
    container: String,
    sandbox: String,
}

impl Bench<'_> {
    /// Measures `count` commands and first bytes of logs in turn, so that disturbances affect all alike.
    pub(super) async fn streams(&mut self, count: usize) -> Result<(), HarnessError> {
        let pod = pod()?;
        let user = self
            .cluster
            .identity("streams", "streams", &["system:masters"])?;
        let mut sides = Vec::new();
        for side in &mut self.sides {
            let name = format!("streams-{}", side.program());
            side.up(&name, &pod).await?;
            let endpoint = Endpoint {
                tls: Some(any_server::tls(Some(&user))?),
                port: side.node.ports().0,
            };
            sides.push(side.streams(&name, endpoint).await?);
        }
        let [kubelet, polylet] = sides.as_slice() else {
            return Ok(());
        };
        let runtime = RuntimeStreams::new(&self.sides[1].node)?;
        self.commands(&runtime, [kubelet, polylet], count).await?;
        self.first_bytes([kubelet, polylet], count).await?;
        self.forwarded(&runtime, [kubelet, polylet]).await?;
        self.followers([kubelet, polylet]).await
    }

    async fn commands(
        &mut self,
        runtime: &RuntimeStreams,
        sides: [&StreamTarget; 2],
        count: usize,
    ) -> Result<(), HarnessError> {
        let mut floor = Samples::default();
        let mut took: [Samples; 2] = Default::default();
        // The first iteration is warm-up.
        for n in 0..=count {
            eprint!("\rcommands: {n}/{count} ");
            let began = Instant::now();
            let (endpoint, path) = runtime.exec(&sides[1].container, "true").await?;
            exec(&endpoint, &path).await?;
            let raw = began.elapsed();
            for (side, took) in sides.iter().zip(&mut took) {
                let began = Instant::now();
                let path = format!(
                    "/exec/default/{}/main?command=true&output=1&error=1",
                    side.pod
                );
                exec(&side.endpoint, &path).await?;
                if n > 0 {
                    took.add(began.elapsed());
                }
            }
            if n > 0 {
                floor.add(raw);
            }
        }
        eprintln!();
        let what = format!("exec of `true` → its status, of {count}");
        self.table.times(&what, Some(&floor), &took);
        Ok(())
    }

    /// The runtime serves no logs.
    async fn first_bytes(
        &mut self,
        sides: [&StreamTarget; 2],
        count: usize,
    ) -> Result<(), HarnessError> {
        let mut took: [Samples; 2] = Default::default();
        for n in 0..=count {
            for (side, took) in sides.iter().zip(&mut took) {
                let began = Instant::now();
                side.log("tailLines=10").await?;
                if n > 0 {
                    took.add(began.elapsed());
                }
            }
        }
        let what = format!("last 10 lines of a log → first byte, of {count}");
        self.table.times(&what, None, &took);
        Ok(())
    }

    async fn forwarded(
        &mut self,
        runtime: &RuntimeStreams,
        sides: [&StreamTarget; 2],
    ) -> Result<(), HarnessError> {
        let raw = |pod: String| async move {
            let (endpoint, path) = runtime.port_forward(&pod, PORT).await?;
            transfer(&endpoint, &path).await
        };
        let path = |side: &StreamTarget| format!("/portForward/default/{}?port={PORT}", side.pod);
        let mut took: [Vec<Duration>; 3] = Default::default();
        for n in 0..=TRANSFERS {
            eprint!("\rforwarded ports: {n}/{TRANSFERS} ");
            // None is always the first, or the one after another.
            for turn in 0..took.len() {
                let which = (n + turn) % took.len();
                let transferred = match which.checked_sub(1).and_then(|side| sides.get(side)) {
                    None => raw(sides[1].sandbox.clone()).await?,
                    Some(side) => transfer(&side.endpoint, &path(side)).await?,
                };
                if n > 0
                    && let Some(took) = took.get_mut(which)
                {
                    took.push(transferred);
                }
            }
        }
        eprintln!();
        let [floor, took @ ..] = took;
        let rate = |took: &Duration| FORWARDED_MIB as f64 / took.as_secs_f64().max(1e-9);
        let cells = took.map(|took| {
            // Of transfers that were made one after another: the machine's own rate varies.
            let shares = floor
                .iter()
                .zip(&took)
                .map(|(raw, took)| rate(took) / rate(raw));
            let share = 100.0 * median(shares);
            format!("{:.0} MiB/s ({share:.0} %)", median(took.iter().map(rate)))
        });
        let raw = median(floor.iter().map(rate));
        let what = format!("{FORWARDED_MIB} MiB through a forwarded port, p50 of {TRANSFERS}");
        self.table.line(what, format!("{raw:.0} MiB/s"), cells);
        Ok(())
    }

    /// The memory and the use of processors that followers of one log add, of one line in 100 ms.
    async fn followers(&mut self, sides: [&StreamTarget; 2]) -> Result<(), HarnessError> {
        let mut cells = [String::new(), String::new()];
        for ((side, agent), cell) in sides.iter().zip(&self.sides).zip(&mut cells) {
            eprintln!("{FOLLOWERS} followers of {}", agent.program());
            tokio::time::sleep(SETTLE).await;
            let before = idle::measure(&agent.node, agent.program(), self.window).await;
            let mut followers = Vec::new();
            for _ in 0..FOLLOWERS {
                followers.push(side.log("follow=true&tailLines=1").await?);
            }
            let readers: Vec<_> = followers.into_iter().map(drain).collect();
            let during = idle::measure(&agent.node, agent.program(), self.window).await;
            readers.iter().for_each(tokio::task::JoinHandle::abort);
            *cell = format!(
                "{:.3} core, {:.1} MiB PSS",
                during.cores - before.cores,
                during.pss_mib - before.pss_mib
            );
        }
        let what = format!("{FOLLOWERS} followers of a log with 10 lines a second");
        self.table.line(what, "", cells);
        Ok(())
    }
}

impl Agent<'_> {
    /// What the runtime and the node API know its pod by.
    async fn streams(&self, pod: &str, endpoint: Endpoint) -> Result<StreamTarget, HarnessError> {
        let cri = polylet_harness::cri::Cri::new(&polylet_harness::containerd::socket(
            self.node.scratch(),
        ))?;
        let uid = self.uid(pod);
        let containers = cri.containers().await?;
        let found = containers.into_iter().find(|container| {
            let of = container.labels.get("io.kubernetes.pod.uid");
            of.is_some_and(|of| *of == uid)
        });
        let found = found.ok_or_else(|| http_error(pod, "no container".to_owned()))?;
        Ok(StreamTarget {
            endpoint,
            pod: pod.to_owned(),
            container: found.id,
            sandbox: found.pod_sandbox_id,
        })
    }
}

impl StreamTarget {
    async fn log(&self, query: &str) -> Result<Box<dyn ByteStream>, HarnessError> {
        let path = format!("/containerLogs/default/{}/main?{query}", self.pod);
        self.endpoint.get(&path).await
    }
}

/// A pod that writes a line in 100 ms, and sends much to each connection.
fn pod() -> Result<Value, HarnessError> {
    let mut pod = manifest(ManifestKind::Bare)?;
    let script = format!(
        "nc -ll -p {PORT} -e head -c {FORWARDED_MIB}m /dev/zero & \
         trap 'exit 0' TERM; while :; do echo a line of the log; sleep 0.1; done"
    );
    pod["spec"]["containers"][0]["command"] = json!(["sh", "-c", script]);
    Ok(pod)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Runs a command to its status.
async fn exec(endpoint: &Endpoint, path: &str) -> Result<(), HarnessError> {
    let mut socket = endpoint.web_socket(path).await?;
    while let Some(message) = socket.next().await {
        let message = message.map_err(|error| http_error(path, error.to_string()))?;
        let data = message.into_data();
        if let Some((&STATUS_CHANNEL, status)) = data.split_first()
            && !status.is_empty()
        {
            let status = String::from_utf8_lossy(status);
            if status.contains("Success") {
                return Ok(());
            }
            return Err(http_error(path, status.into_owned()));
        }
    }
    Err(http_error(path, "no status".to_owned()))
}

/// The time in which all data arrives.
async fn transfer(endpoint: &Endpoint, path: &str) -> Result<Duration, HarnessError> {
    let began = Instant::now();
    let mut socket = endpoint.web_socket(path).await?;
    // The number of the port comes first.
    let mut left = (FORWARDED_MIB << 20) + 2;
    while left > 0 {
        let Some(message) = socket.next().await else {
            return Err(http_error(path, format!("{left} bytes are missing")));
        };
        let message = message.map_err(|error| http_error(path, error.to_string()))?;
        let data = message.into_data();
        match data.split_first() {
            Some((&DATA_CHANNEL, data)) => {
                left = left.saturating_sub(u64::try_from(data.len()).unwrap_or_default());
            }
            // The number of the port comes first here, too.
            Some((&ERROR_CHANNEL, error)) if error.len() > 2 => {
                return Err(http_error(
                    path,
                    String::from_utf8_lossy(error).into_owned(),
                ));
            }
            _ => {}
        }
    }
    Ok(began.elapsed())
}

/// Reads a stream to its end.
fn drain(mut stream: Box<dyn ByteStream>) -> tokio::task::JoinHandle<()> {
    tokio::task::spawn_local(async move {
        // An error ends it as well.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    })
}
