use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::error::{HarnessError, file};
use crate::wait::{Poll, until};
use crate::{Containerd, containerd, http, image, machine, packages, procs, wait};

/// User name of a registry with a password.
pub const USER: &str = "puller";

/// The user's password.
pub const PASSWORD: &str = "let-me-pull";

/// bcrypt hash of the password.
const HASH: &str = "$2y$05$polyletpolyletpolyleteRkRKP9yFq1TCsbZSw./btQiEypr9hN.";

/// containerd namespace for images before their push, invisible to the node.
const NAMESPACE: &str = "harness";

/// A real registry on a free loopback port, over plain HTTP. Stopped on drop; after SIGKILL of this
/// process, cleanup of the run stops it.
#[derive(Debug)]
pub struct Registry {
    name: String,
    dir: PathBuf,
    port: u16,
    locked: bool,
    child: Option<Child>,
}

impl Registry {
    /// Starts a registry below the run's directory. `name` is the registry host in image
    /// references. With `locked`, it requires [`USER`] and [`PASSWORD`].
    ///
    /// # Errors
    /// Fails if the program is not available or does not become ready.
    pub async fn start(
        containerd: &Containerd,
        name: &str,
        locked: bool,
    ) -> Result<Self, HarnessError> {
        let program = packages::aside("docker-registry", "docker-registry")?;
        let dir = containerd.registries();
        let dir = dir.with_file_name(format!("registry-{name}"));
        file("make", &dir, fs::create_dir_all(dir.join("data")))?;
        let port = machine::free_port()?;
        let config = config(&dir, port, locked);
        let path = dir.join("config.yml");
        file("write", &path, fs::write(&path, config.to_string()))?;
        let users = dir.join("htpasswd");
        file(
            "write",
            &users,
            fs::write(&users, format!("{USER}:{HASH}\n")),
        )?;
        let mut this = Self {
            name: name.to_owned(),
            dir,
            port,
            locked,
            child: None,
        };
        this.known_as(containerd, name)?;
        this.spawn(&program, &path)?;
        this.answers().await?;
        Ok(this)
    }

    /// Configures an additional registry host name in `containerd`.
    ///
    /// # Errors
    /// Fails if the configuration cannot be written.
    pub fn known_as(&self, containerd: &Containerd, name: &str) -> Result<(), HarnessError> {
        let dir = containerd.registries().join(name);
        file("make", &dir, fs::create_dir_all(&dir))?;
        let hosts = dir.join("hosts.toml");
        let url = format!("http://127.0.0.1:{}", self.port);
        let text = format!(
            "server = \"{url}\"\n[host.\"{url}\"]\ncapabilities = [\"pull\", \"resolve\"]\n"
        );
        file("write", &hosts, fs::write(&hosts, text))
    }

    /// Pauses the registry with SIGSTOP: requests hang.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes the registry; pending requests are answered.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            machine::signal(child.id(), signal);
        }
    }

    fn spawn(&mut self, program: &Path, config: &Path) -> Result<(), HarnessError> {
        let log_path = self.log();
        let log = file("make", &log_path, File::create(&log_path))?;
        let also = file("open", &log_path, log.try_clone())?;
        let child = Command::new(program)
            .arg("serve")
            .arg(config)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(also)
            .process_group(0)
            .spawn();
        self.child = Some(child.map_err(|source| HarnessError::Run {
            program: "docker-registry".to_owned(),
            source,
        })?);
        Ok(())
    }

    async fn answers(&mut self) -> Result<(), HarnessError> {
        let (port, log) = (self.port, self.log());
        let child = &mut self.child;
        let mut ended = None;
        let up = until("the registry to respond", || {
            ended = child.as_mut().and_then(|c| c.try_wait().ok().flatten());
            let gone = ended.is_some();
            async move {
                match http::get("127.0.0.1", port, "/v2/").await {
                    Ok(answer) if [200, 401].contains(&answer.code()) => Poll::Ready(true),
                    _ if gone => Poll::Ready(false),
                    Ok(answer) => Poll::Pending(answer.status),
                    Err(error) => Poll::Pending(crate::error::report(&error)),
                }
            }
        });
        if up.await? {
            return Ok(());
        }
        Err(HarnessError::ExitedEarly {
            program: "docker-registry",
            status: ended.map(|status| status.to_string()).unwrap_or_default(),
            log: containerd::tail(&log, 15),
        })
    }

    /// Builds a busybox image with `config` and pushes it as `path` (`team/app:1`). Returns its
    /// digest. The image is not available on the node until pulled.
    ///
    /// # Errors
    /// Fails if the image cannot be built or the push fails.
    pub fn push(
        &self,
        containerd: &Containerd,
        path: &str,
        config: &Value,
    ) -> Result<String, HarnessError> {
        let reference = format!("127.0.0.1:{}/{path}", self.port);
        let archive = image::write(&self.dir, &reference, config)?;
        let ctr = |words: &[&str]| containerd.ctr_in(NAMESPACE, words);
        ctr(&["images", "import", &archive.display().to_string()])?;
        file("remove", &archive, fs::remove_file(&archive))?;
        let login = format!("{USER}:{PASSWORD}");
        let mut words = vec!["images", "push", "--plain-http"];
        if self.locked {
            words.extend(["--user", &login]);
        }
        words.push(&reference);
        ctr(&words)?;
        let listed = ctr(&["images", "ls", &format!("name=={reference}")])?;
        let digest = listed
            .split_whitespace()
            .find(|word| word.starts_with("sha256:"));
        let digest = digest.unwrap_or_default().to_owned();
        ctr(&["images", "rm", "--sync", &reference])?;
        Ok(digest)
    }

    /// Pushes the image of an archive, whose reference names this registry.
    ///
    /// # Errors
    /// Fails if the image cannot be imported or pushed.
    pub fn push_archive(
        &self,
        containerd: &Containerd,
        reference: &str,
        archive: &Path,
    ) -> Result<(), HarnessError> {
        let path = reference.trim_start_matches(&self.name);
        let remote = format!("127.0.0.1:{}{path}", self.port);
        let ctr = |words: &[&str]| containerd.ctr_in(NAMESPACE, words);
        ctr(&["images", "import", &archive.display().to_string()])?;
        ctr(&["images", "push", "--plain-http", &remote, reference])?;
        ctr(&["images", "rm", "--sync", reference])?;
        Ok(())
    }

    /// The full reference of an image in this registry.
    pub fn image(&self, path: &str) -> String {
        format!("{}/{path}", self.name)
    }

    /// Number of pulls of an image, counted by its manifest requests. `path` has no tag.
    pub fn pulls(&self, path: &str) -> usize {
        let wanted = format!("\"HEAD /v2/{path}/manifests/");
        let name = format!("ns={}", self.name);
        self.requests(|line| {
            line.contains(&wanted) && line.contains(&name) && line.contains("\" 200 ")
        })
    }

    /// Number of matching requests in the access log.
    pub fn requests(&self, wanted: impl Fn(&str) -> bool) -> usize {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().filter(|line| wanted(line)).count()
    }

    /// Content of its log, including the access log.
    pub fn log(&self) -> PathBuf {
        self.dir.join("registry.log")
    }

    /// The registry host in image references.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // A stopped process does not handle SIGTERM.
        machine::signal(child.id(), Signal::CONT);
        machine::signal(child.id(), Signal::TERM);
        if !wait::until_blocking(Duration::from_secs(5), || !procs::alive(child.id())) {
            machine::signal(child.id(), Signal::KILL);
        }
        // Already exited: only reaps it.
        let _ = child.wait();
    }
}

/// The configuration is YAML, a superset of JSON.
fn config(dir: &Path, port: u16, locked: bool) -> Value {
    let mut config = serde_json::json!({
        "version": 0.1,
        "log": { "accesslog": { "disabled": false }, "level": "warn" },
        "storage": {
            "filesystem": { "rootdirectory": dir.join("data") },
            "delete": { "enabled": true },
        },
        "http": { "addr": format!("127.0.0.1:{port}") },
    });
    if locked {
        let users = dir.join("htpasswd");
        config["auth"] = serde_json::json!({ "htpasswd": { "realm": "polylet", "path": users } });
    }
    config
}
