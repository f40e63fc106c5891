use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rcgen::SanType;

use self::authority::CertificateAuthority;
use self::kubeconfig::User;
use crate::error::{HarnessError, file, report};
use crate::guard::CleanupGuard;
use crate::machine;
use crate::scratch::{self, Scratch};
use crate::wait::{Poll, until};

/// Kubeconfigs, certificates and tokens of clients.
mod access;
/// Command lines of the components.
mod args;
/// Requests to the API and waits for conditions.
mod ask;
/// Requests of nodes, from the API server's audit log.
mod audit;
/// The cluster's CA.
mod authority;
/// A JSON client over HTTPS.
mod client;
/// A control plane process.
mod component;
/// Control plane faults: etcd compaction, CA change, several API servers.
mod faults;
/// Kubeconfig files.
mod kubeconfig;
/// The real kubelet, for comparison.
mod kubelet;
/// metrics-server, for `kubectl top`.
mod metrics_server;
/// Control plane binaries: lookup and build.
pub(crate) mod programs;
/// A Prometheus server that scrapes a node.
mod prometheus;
/// An HTTP CONNECT proxy in front of the API server.
mod proxy;
/// A TCP proxy that can blackhole connections to the API server.
mod tcp_proxy;

pub use access::CLUSTER_DOMAIN;
pub use ask::{condition, is_ready, pod_path};
pub use audit::AuditEvent;
pub use client::{Client, ObjectWatch, Patch};
pub use component::Component;
pub use faults::set_in_kubeconfig;
pub use programs::{Programs, cache_dir};
pub use prometheus::Prometheus;
pub use proxy::Proxy;
pub use tcp_proxy::TcpProxy;

/// Options of a cluster.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// Further API server flags; they follow the defaults and override them.
    pub api_server: Vec<String>,
    /// Further controller manager flags.
    pub controller_manager: Vec<String>,
    /// Further addresses in the API server's certificate, such as the host's address as seen from a
    /// virtual machine.
    pub addresses: Vec<IpAddr>,
}

/// A real control plane on free loopback ports: etcd, kube-apiserver, kube-controller-manager and
/// kube-scheduler. Dropping it removes everything; if this process is killed, its processes end too
/// and the next run removes its files.
#[derive(Debug)]
pub struct Cluster {
    programs: Programs,
    authority: CertificateAuthority,
    port: u16,
    etcd_port: u16,
    client: Client,
    /// The kube-scheduler process.
    pub scheduler: Component,
    /// The kube-controller-manager process.
    pub controller_manager: Component,
    /// The kube-apiserver process.
    pub api: Component,
    /// The etcd process.
    pub etcd: Component,
    /// Duration of each startup step.
    pub took: Vec<(&'static str, Duration)>,
    guard: CleanupGuard,
    // Last field: the lock is released after everything else is dropped.
    scratch: Scratch,
}

impl Cluster {
    /// Starts a cluster and waits until the namespace `default` accepts pods.
    ///
    /// # Errors
    /// Fails if a program is missing or does not become ready.
    pub async fn start(options: &ClusterOptions, say: &dyn Fn(&str)) -> Result<Self, HarnessError> {
        let programs = Programs::ready(say).await?;
        let mut cluster = Self::prepare(options, programs)?;
        let up = cluster.up().await;
        if up.is_err() {
            cluster.keep_logs();
        }
        up.map(|()| cluster)
    }

    fn prepare(options: &ClusterOptions, programs: Programs) -> Result<Self, HarnessError> {
        let begun = Instant::now();
        let scratch = Scratch::create()?;
        let guard = CleanupGuard::new(scratch.dir());
        let (dir, pki) = (scratch.dir(), scratch.sub("pki")?);
        let authority = CertificateAuthority::create(&pki)?;
        let ca = authority.own();
        let first: Ipv4Addr = args::FIRST_SERVICE.into();
        let addresses = options.addresses.iter().copied().chain([first.into()]);
        let names: Vec<SanType> = addresses.map(SanType::IpAddress).collect();
        let serving = authority.server("kube-apiserver", &names)?;
        let admin = authority.client("admin", "polylet-admin", &["system:masters"])?;
        let node_client = authority.client("to-nodes", "kube-apiserver", &["system:masters"])?;
        let proxy_client = authority.client("front-proxy", args::FRONT_PROXY, &[])?;
        let etcd_server = authority.server("etcd", &[])?;
        let etcd_client = authority.client("to-etcd", "kube-apiserver", &[])?;
        let tokens = authority.tokens()?;
        let (port, etcd_port) = (machine::free_port()?, machine::free_port()?);
        let (audit_policy, audit_log) = (dir.join("audit.json"), dir.join("audit.log"));
        file(
            "write",
            &audit_policy,
            fs::write(&audit_policy, args::audit_policy()),
        )?;

        let etcd_ports = (etcd_port, machine::free_port()?);
        let etcd_args = args::etcd(dir, etcd_ports, &etcd_server, &ca.certificate);
        let mut api_args = args::api_server(&args::ApiServerArgs {
            dir,
            port,
            etcd_port,
            authority: &ca.certificate,
            serving: &serving,
            etcd_client: &etcd_client,
            node_client: &node_client,
            proxy_client: &proxy_client,
            tokens: &tokens,
            audit_policy: &audit_policy,
            audit_log: &audit_log,
        });
        api_args.extend(options.api_server.iter().cloned());
        let controller = dir.join("controller-manager.kubeconfig");
        let mut controller_args = args::controller_manager(dir, &controller, &ca, &tokens);
        controller_args.extend(options.controller_manager.iter().cloned());
        let scheduler = dir.join("scheduler.kubeconfig");
        let scheduler_args = args::scheduler(dir, &scheduler);
        let part = |name, args| {
            Ok::<_, HarnessError>(Component::new(name, programs.path(name)?, args, dir))
        };
        let cluster = Self {
            client: Client::new(port, &ca.certificate, &admin)?,
            etcd: part("etcd", etcd_args)?,
            api: part("kube-apiserver", api_args)?,
            controller_manager: part("kube-controller-manager", controller_args)?,
            scheduler: part("kube-scheduler", scheduler_args)?,
            programs,
            authority,
            port,
            etcd_port,
            took: vec![("certificates", begun.elapsed())],
            guard,
            scratch,
        };
        cluster.kubeconfig(&cluster.admin(), &User::Certificate(&admin))?;
        for (name, path) in [
            ("kube-controller-manager", controller),
            ("kube-scheduler", scheduler),
        ] {
            let user = format!("system:{name}");
            let identity = cluster.authority.client(name, &user, &[])?;
            cluster.kubeconfig(&path, &User::Certificate(&identity))?;
        }
        Ok(cluster)
    }

    async fn up(&mut self) -> Result<(), HarnessError> {
        let begun = Instant::now();
        self.etcd.start()?;
        // The API server retries its connection to etcd.
        self.start_api().await?;
        self.took.push(("etcd and kube-apiserver", begun.elapsed()));
        let begun = Instant::now();
        self.controller_manager.start()?;
        self.scheduler.start()?;
        self.wait_namespace("default").await?;
        self.took.push(("controllers", begun.elapsed()));
        Ok(())
    }

    /// Starts the API server and waits until it is ready.
    ///
    /// # Errors
    /// Fails with the end of its log if it exits, or on timeout.
    pub async fn start_api(&mut self) -> Result<(), HarnessError> {
        self.api.start()?;
        let (client, api, etcd) = (&self.client, &mut self.api, &mut self.etcd);
        let mut ended = None;
        until("the API server to be ready", || {
            ended = api.try_exit_status().or_else(|| etcd.try_exit_status());
            let gone = ended.is_some();
            async move {
                match client.text("/readyz").await {
                    Ok(_) => Poll::Ready(()),
                    Err(_) if gone => Poll::Ready(()),
                    Err(error) => Poll::Pending(report(&error)),
                }
            }
        })
        .await?;
        match ended {
            None => Ok(()),
            Some(status) if self.etcd.try_exit_status().is_some() => Err(self.etcd.failure(status)),
            Some(status) => Err(self.api.failure(status)),
        }
    }

    /// Kills the API server with SIGKILL, as in a power loss.
    pub fn stop_api(&mut self) {
        self.api.stop(true);
    }

    /// Path of the CA certificate.
    pub fn authority(&self) -> PathBuf {
        self.authority.own().certificate
    }

    /// URL of the API server.
    pub fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// A client with cluster admin rights.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The control plane binaries.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// The scratch directory.
    pub fn scratch(&self) -> &Path {
        self.scratch.dir()
    }

    /// Stops all processes and removes all files.
    ///
    /// # Errors
    /// [`HarnessError::LeftBehind`] if something could not be removed.
    pub fn remove(mut self) -> Result<(), HarnessError> {
        self.down();
        let left = self.guard.sweep();
        if left.is_empty() {
            Ok(())
        } else {
            Err(HarnessError::Leftover { left })
        }
    }

    fn down(&mut self) {
        for part in [
            &mut self.scheduler,
            &mut self.controller_manager,
            &mut self.api,
            &mut self.etcd,
        ] {
            part.stop(true);
        }
    }

    fn audit_log(&self) -> PathBuf {
        self.scratch.dir().join("audit.log")
    }

    /// After a failed test, saves the logs before the removal.
    fn keep_logs(&self) {
        let parts = [
            &self.etcd,
            &self.api,
            &self.controller_manager,
            &self.scheduler,
        ];
        let mut logs: Vec<PathBuf> = parts.iter().map(|part| part.log().to_owned()).collect();
        logs.push(self.audit_log());
        scratch::keep_logs(&self.scratch.facts().id, &logs);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_logs();
        }
        self.down();
    }
}
