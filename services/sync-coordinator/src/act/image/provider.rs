//! Credential provider plugins: programs that are asked for logins.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use futures::future::{FutureExt, LocalBoxFuture, Shared, WeakShared, join_all};
use jiff::Timestamp;
use polylet_kit::config::PolyletConfiguration;
use polylet_model::Manifest;
use rustix::fs::Access;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::super::Hands;
use super::account::{self, AccountError};
use crate::core::credentials::docker_config::Logins;
use crate::core::credentials::keyring::Keyring;
use crate::core::credentials::provider::{
    Account, Answer, AnswerError, Cache, Provider, ProviderConfigError, ServiceAccount, Whose,
    config, request,
};
use crate::core::credentials::{Credential, Source};

/// How long a plugin may take, as upstream has it.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than this is no answer.
const MOST_BYTES: u64 = 1 << 20;
/// As much of a plugin's complaints is told.
const MOST_WORDS: u64 = 1 << 10;

/// Plugins that cannot be used as they are configured.
#[derive(Debug, thiserror::Error)]
pub enum ProvidersError {
    /// A file or directory cannot be read.
    #[error("reading {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The directory holds no file of the three kinds.
    #[error("{0} holds no .json, .yaml or .yml file")]
    NoFile(PathBuf),
    /// A file says something wrong.
    #[error(transparent)]
    Config(#[from] ProviderConfigError),
    /// A plugin's program is not there, or cannot be run.
    #[error("the credential provider's program {0} is not there or cannot be run")]
    Program(PathBuf),
}

/// Why a plugin gave no login. Nothing of its answer is in it; what it complains of is.
#[derive(Clone, Debug, thiserror::Error)]
enum AskError {
    #[error("the program cannot be run: {0}")]
    Run(String),
    #[error("it gave no answer within {} s", PATIENCE.as_secs())]
    Patience,
    #[error("it ended with {status}: {complaint}")]
    Status { status: String, complaint: String },
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error("{0}")]
    Account(String),
}

impl From<AccountError> for AskError {
    fn from(error: AccountError) -> Self {
        Self::Account(error.to_string())
    }
}

/// The image, and who asks.
type Question = (String, Option<Whose>);
type Asking = LocalBoxFuture<'static, Result<Logins, AskError>>;

struct Plugin {
    provider: Provider,
    program: PathBuf,
    cache: RefCell<Cache>,
    /// Questions on their way: one for all who wait.
    asked: RefCell<HashMap<Question, WeakShared<Asking>>>,
}

/// All plugins, in the configuration's order.
#[derive(Default)]
pub struct Providers {
    plugins: Vec<Rc<Plugin>>,
}

impl Providers {
    /// Reads the configuration; no plugin is asked yet.
    ///
    /// # Errors
    /// When the configuration names what is not there, or is wrong: a node that silently does
    /// without a plugin fails much later, and nobody sees why.
    pub fn load(settings: &PolyletConfiguration) -> Result<Self, ProvidersError> {
        let file = settings.image_credential_provider_config_file.as_deref();
        let dir = settings.image_credential_provider_bin_dir.as_deref();
        let (file, dir) = match (file, dir) {
            (Some(file), Some(dir)) => (file, dir),
            _ => return Ok(Self::default()),
        };
        let providers = config::read(&texts(file)?)?;
        let plugins = providers.into_iter().map(|provider| {
            let program = dir.join(&provider.name);
            let usable = program.is_file() && rustix::fs::access(&program, Access::EXEC_OK).is_ok();
            if !usable {
                return Err(ProvidersError::Program(program));
            }
            Ok(Rc::new(Plugin {
                provider,
                program,
                cache: RefCell::default(),
                asked: RefCell::default(),
            }))
        });
        let plugins = plugins.collect::<Result<_, _>>()?;
        Ok(Self { plugins })
    }

    /// What all plugins that are for an image say. One that fails is told of, and gives nothing.
    pub async fn lookup(&self, hands: &Hands, manifest: &Manifest, image: &str) -> Vec<Credential> {
        let asked = self.plugins.iter();
        let asked = asked.filter(|plugin| plugin.provider.is_for(image));
        let answers = join_all(asked.map(|plugin| async move {
            let answer = for_pod(plugin, hands, manifest, image).await;
            answer.unwrap_or_else(|error| {
                let (name, error) = (&plugin.provider.name, error.to_string());
                tracing::warn!(
                    provider = name,
                    image,
                    k8s.pod.name = manifest.name(),
                    k8s.namespace.name = manifest.namespace(),
                    error,
                    "Failed to provide credentials for image"
                );
                (Source::Node, Logins::new())
            })
        }));
        let mut ring = Keyring::default();
        for (source, logins) in answers.await {
            ring.add(&source, logins);
        }
        ring.lookup(image)
    }
}

/// What one plugin says for a pod, and who may use it. One that wants a token of the pod's service
/// account is asked for pods without one as well, unless it requires one.
async fn for_pod(
    plugin: &Rc<Plugin>,
    hands: &Hands,
    manifest: &Manifest,
    image: &str,
) -> Result<(Source, Logins), AskError> {
    let name = manifest.spec().service_account_name.as_deref();
    let name = name.filter(|name| !name.is_empty());
    let account = match (&plugin.provider.service_account, name) {
        (None, _) => None,
        (Some(wanted), None) if wanted.required => return Ok((Source::Node, Logins::new())),
        (Some(_), None) => None,
        (Some(wanted), Some(name)) => match account::of(hands, manifest, name, wanted).await? {
            Some(account) => Some((wanted, account)),
            None => return Ok((Source::Node, Logins::new())),
        },
    };
    let source = match &account {
        Some((_, account)) => Source::Account(account.of.clone()),
        None => Source::Node,
    };
    let whose = account.as_ref().map(|(wanted, of)| wanted.whose(of));
    let known = {
        let cache = plugin.cache.borrow();
        cache.get(image, whose.as_ref(), Timestamp::now()).cloned()
    };
    if let Some(logins) = known {
        return Ok((source, logins));
    }
    let account = account.map(|(_, account)| account);
    Ok((source, under_way(plugin, image, account).await?))
}

/// The question under way, or a new one.
fn under_way(plugin: &Rc<Plugin>, image: &str, account: Option<Account>) -> Shared<Asking> {
    let mut asked = plugin.asked.borrow_mut();
    asked.retain(|_, asking| asking.upgrade().is_some_and(|a| a.peek().is_none()));
    let by = account.as_ref().map(ServiceAccount::asked_by);
    let key = (image.to_owned(), by);
    if let Some(asking) = asked.get(&key).and_then(WeakShared::upgrade) {
        return asking;
    }
    let (mine, name) = (Rc::clone(plugin), image.to_owned());
    let asking = async move {
        let provider = &mine.provider;
        let question = request(&provider.api_version, &name, account.as_ref());
        let run = tokio::time::timeout(PATIENCE, run(&mine, question)).await;
        let output = run.map_err(|_| AskError::Patience)??;
        let answer = Answer::read(&provider.api_version, &output)?;
        let mut whose = None;
        if let Some((wanted, account)) = provider.service_account.as_ref().zip(account.as_ref()) {
            wanted.check(&answer, account)?;
            whose = Some(wanted.whose(account));
        }
        let now = Timestamp::now();
        let (default, mut cache) = (provider.default_cache, mine.cache.borrow_mut());
        cache.put((&name, whose), &answer, default, now);
        Ok(answer.logins)
    };
    let asking = asking.boxed_local().shared();
    if let Some(weak) = asking.downgrade() {
        asked.insert(key, weak);
    }
    asking
}

/// Runs the program: the question goes to its input, the answer comes from its output.
async fn run(plugin: &Plugin, question: Vec<u8>) -> Result<Vec<u8>, AskError> {
    let failed = |error: std::io::Error| AskError::Run(error.to_string());
    let env = plugin.provider.env.iter().map(|(key, value)| (key, value));
    let mut child = Command::new(&plugin.program)
        .args(&plugin.provider.args)
        .envs(env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A program that does not read its question may still answer.
            let _ = stdin.write_all(&question).await;
        }
    };
    let ((), output, complaint) =
        tokio::join!(write, all(stdout, MOST_BYTES), all(stderr, MOST_WORDS));
    let status = child.wait().await.map_err(failed)?;
    if status.success() {
        return Ok(output);
    }
    let complaint = String::from_utf8_lossy(&complaint).trim().to_owned();
    Err(AskError::Status {
        status: status.to_string(),
        complaint,
    })
}

/// The first so many bytes; the rest is read and dropped, so that the program can end.
async fn all(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> Vec<u8> {
    let mut kept = Vec::new();
    if let Some(mut pipe) = pipe {
        // What came until a broken pipe is what there is.
        let _ = (&mut pipe).take(most).read_to_end(&mut kept).await;
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
    kept
}

/// The configuration: a file, or all `.json`, `.yaml` and `.yml` files of a directory by name.
fn texts(path: &Path) -> Result<Vec<(String, String)>, ProvidersError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ProvidersError::Read { path, source }
    };
    let mut files = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(failed(path))? {
            let file = entry.map_err(failed(path))?.path();
            let end = file.extension().and_then(|end| end.to_str());
            if matches!(end, Some("json" | "yaml" | "yml")) && !file.is_dir() {
                files.push(file);
            }
        }
        files.sort();
        if files.is_empty() {
            return Err(ProvidersError::NoFile(path.to_owned()));
        }
    } else {
        files.push(path.to_owned());
    }
    let read = files.into_iter().map(|file| {
        let text = std::fs::read_to_string(&file).map_err(failed(&file))?;
        Ok((file.display().to_string(), text))
    });
    read.collect()
}
