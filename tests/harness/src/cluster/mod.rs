use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rcgen::SanType;

use self::authority::Authority;
use self::kubeconfig::User;
use crate::error::{HarnessError, file, report};
use crate::guard::Guard;
use crate::machine;
use crate::scratch::{self, Scratch};
use crate::wait::{Look, until};

/// Who reaches it, and how.
mod access;
/// Command lines of the programs.
mod args;
/// Asking and changing things, and waiting.
mod ask;
/// What node agents asked for, from the API server's audit log.
mod audit;
/// Certificates.
mod authority;
/// JSON over HTTPS.
mod client;
/// How clients find the API server.
mod kubeconfig;
/// The real kubelet, for comparing.
mod kubelet;
/// A line to the API server that can go dead.
mod line;
/// What befalls control planes in a long life.
mod odd;
/// One program of the cluster.
mod part;
/// Finding the programs, and building them once.
mod programs;
/// A proxy before the API server.
mod proxy;

pub use ask::{condition, is_ready, pod_path};
pub use audit::Audited;
pub use client::{Client, Patch, Watch};
pub use line::Line;
pub use odd::set_in_kubeconfig;
pub use part::Part;
pub use programs::{Programs, cache_dir};
pub use proxy::Proxy;

/// How a cluster is to be.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// Further flags of the API server; those of ours come first, and the last one counts.
    pub api_server: Vec<String>,
    /// Further flags of the controller manager.
    pub controller_manager: Vec<String>,
}

/// A real control plane on free ports of the loopback address: etcd, kube-apiserver,
/// kube-controller-manager and kube-scheduler. When it is dropped, nothing of it stays; when this
/// process is killed, its programs end too, and the next run removes its files.
#[derive(Debug)]
pub struct Cluster {
    programs: Programs,
    authority: Authority,
    port: u16,
    etcd_port: u16,
    client: Client,
    /// kube-scheduler.
    pub scheduler: Part,
    /// kube-controller-manager.
    pub controller_manager: Part,
    /// kube-apiserver.
    pub api: Part,
    /// etcd.
    pub etcd: Part,
    /// How long each step of its start took.
    pub took: Vec<(&'static str, Duration)>,
    guard: Guard,
    // Last: the lock goes when all else is gone.
    scratch: Scratch,
}

impl Cluster {
    /// Starts one and waits until pods can be made in the namespace `default`.
    ///
    /// # Errors
    /// When a program is missing or does not come up.
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
        let guard = Guard::new(scratch.dir());
        let (dir, pki) = (scratch.dir(), scratch.sub("pki")?);
        let authority = Authority::create(&pki)?;
        let ca = authority.own();
        let first: Ipv4Addr = args::FIRST_SERVICE.into();
        let serving = authority.server("kube-apiserver", &[SanType::IpAddress(first.into())])?;
        let admin = authority.client("admin", "polylet-admin", &["system:masters"])?;
        let node_client = authority.client("to-nodes", "kube-apiserver", &["system:masters"])?;
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
        let mut api_args = args::api_server(&args::Server {
            dir,
            port,
            etcd_port,
            authority: &ca.certificate,
            serving: &serving,
            etcd_client: &etcd_client,
            node_client: &node_client,
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
        let part =
            |name, args| Ok::<_, HarnessError>(Part::new(name, programs.path(name)?, args, dir));
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
        self.etcd.up()?;
        // It tries etcd again until that answers.
        self.start_api().await?;
        self.took.push(("etcd and kube-apiserver", begun.elapsed()));
        let begun = Instant::now();
        self.controller_manager.up()?;
        self.scheduler.up()?;
        self.wait_namespace("default").await?;
        self.took.push(("controllers", begun.elapsed()));
        Ok(())
    }

    /// Starts the API server and waits until it is ready.
    ///
    /// # Errors
    /// When it ends, with the end of its log, or patience does.
    pub async fn start_api(&mut self) -> Result<(), HarnessError> {
        self.api.up()?;
        let (client, api, etcd) = (&self.client, &mut self.api, &mut self.etcd);
        let mut ended = None;
        until("the API server to be ready", || {
            ended = api.ended().or_else(|| etcd.ended());
            let gone = ended.is_some();
            async move {
                match client.text("/readyz").await {
                    Ok(_) => Look::Done(()),
                    Err(_) if gone => Look::Done(()),
                    Err(error) => Look::NotYet(report(&error)),
                }
            }
        })
        .await?;
        match ended {
            None => Ok(()),
            Some(status) if self.etcd.ended().is_some() => Err(self.etcd.failure(status)),
            Some(status) => Err(self.api.failure(status)),
        }
    }

    /// Ends the API server at once, as a machine does that loses its power.
    pub fn stop_api(&mut self) {
        self.api.down(true);
    }

    /// The certificate of the authority that signed all others.
    pub fn authority(&self) -> PathBuf {
        self.authority.own().certificate
    }

    /// Where the API server is.
    pub fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// A client that may do everything.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The programs.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// The directory that holds all of it.
    pub fn scratch(&self) -> &Path {
        self.scratch.dir()
    }

    /// Ends everything and removes it.
    ///
    /// # Errors
    /// [`HarnessError::LeftBehind`] when something could not be removed.
    pub fn remove(mut self) -> Result<(), HarnessError> {
        self.down();
        let left = self.guard.sweep();
        if left.is_empty() {
            Ok(())
        } else {
            Err(HarnessError::LeftBehind { left })
        }
    }

    fn down(&mut self) {
        for part in [
            &mut self.scheduler,
            &mut self.controller_manager,
            &mut self.api,
            &mut self.etcd,
        ] {
            part.down(true);
        }
    }

    fn audit_log(&self) -> PathBuf {
        self.scratch.dir().join("audit.log")
    }

    /// A failed test keeps its logs: the rest goes.
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
