//! Credential provider plugins: programs that return registry credentials.

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

use super::super::RuntimeManager;
use super::credentials;
use super::service_account::{self, AccountError};
use crate::core::credentials::docker_config::Logins;
use crate::core::credentials::keyring::Keyring;
use crate::core::credentials::provider::{
    CredentialCache, CredentialProvider, IdentityScope, ProviderConfigError, ProviderResponse,
    ProviderResponseError, ServiceAccountToken, TokenAttributes, config, request,
};
use crate::core::credentials::{Credential, CredentialSource};

/// The time limit of a plugin, as in the kubelet.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum size of a response.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// The maximum size of a plugin's standard error in a message.
const MAX_STDERR_BYTES: u64 = 1 << 10;

/// An invalid configuration of plugins.
#[derive(Debug, thiserror::Error)]
pub enum PluginConfigError {
    /// A file or directory cannot be read.
    #[error("reading {path}")]
    Read {
        /// Path of the file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The directory has no configuration file.
    #[error("{0} has no .json, .yaml or .yml file")]
    NoFile(PathBuf),
    /// A file is invalid.
    #[error(transparent)]
    Config(#[from] ProviderConfigError),
    /// A plugin does not exist, or is not executable.
    #[error("credential provider plugin {0} does not exist or is not executable")]
    Program(PathBuf),
}

/// A plugin returned no credentials. Its standard error is included, its response is not.
#[derive(Clone, Debug, thiserror::Error)]
enum CredentialPluginError {
    #[error("running the plugin: {0}")]
    Run(String),
    #[error("the plugin did not respond within {} s", PLUGIN_TIMEOUT.as_secs())]
    Timeout,
    #[error("the plugin failed with {status}: {stderr}")]
    Status { status: String, stderr: String },
    #[error(transparent)]
    Answer(#[from] ProviderResponseError),
    #[error("{0}")]
    Account(String),
}

impl From<AccountError> for CredentialPluginError {
    fn from(error: AccountError) -> Self {
        Self::Account(error.to_string())
    }
}

/// The image, and the scope of the service account.
type RequestKey = (String, Option<IdentityScope>);
type LoginsFuture = LocalBoxFuture<'static, Result<Logins, CredentialPluginError>>;

struct Plugin {
    provider: CredentialProvider,
    program: PathBuf,
    cache: RefCell<CredentialCache>,
    /// Calls in flight: one for all pulls that wait for it.
    in_flight: RefCell<HashMap<RequestKey, WeakShared<LoginsFuture>>>,
}

/// All plugins, in the order of the configuration.
#[derive(Default)]
pub struct CredentialPlugins {
    plugins: Vec<Rc<Plugin>>,
}

impl CredentialPlugins {
    /// Reads the configuration; no plugin is run yet.
    ///
    /// # Errors
    /// The configuration is invalid, or a plugin does not exist: without it, pulls would fail later
    /// without a visible cause.
    pub fn load(settings: &PolyletConfiguration) -> Result<Self, PluginConfigError> {
        let file = settings.image_credential_provider_config_file.as_deref();
        let dir = settings.image_credential_provider_bin_dir.as_deref();
        let (file, dir) = match (file, dir) {
            (Some(file), Some(dir)) => (file, dir),
            _ => return Ok(Self::default()),
        };
        let providers = config::parse(&read_files(file)?)?;
        let plugins = providers.into_iter().map(|provider| {
            let program = dir.join(&provider.name);
            let usable = program.is_file() && rustix::fs::access(&program, Access::EXEC_OK).is_ok();
            if !usable {
                return Err(PluginConfigError::Program(program));
            }
            Ok(Rc::new(Plugin {
                provider,
                program,
                cache: RefCell::default(),
                in_flight: RefCell::default(),
            }))
        });
        let plugins = plugins.collect::<Result<_, _>>()?;
        Ok(Self { plugins })
    }

    /// Credentials from all plugins that match an image. A failure is logged and yields none.
    pub async fn lookup(
        &self,
        manager: &RuntimeManager,
        manifest: &Manifest,
        image: &str,
    ) -> Vec<Credential> {
        let plugins = self.plugins.iter();
        let plugins = plugins.filter(|plugin| plugin.provider.matches_image(image));
        let responses = join_all(plugins.map(|plugin| async move {
            let response = for_pod(plugin, manager, manifest, image).await;
            response.unwrap_or_else(|error| {
                let (name, error) = (&plugin.provider.name, error.to_string());
                tracing::warn!(
                    provider = name,
                    image,
                    pod = format!("{}/{}", manifest.namespace(), manifest.name()),
                    error,
                    "Failed to provide credentials for image"
                );
                (CredentialSource::Node, Logins::new())
            })
        }));
        let mut ring = Keyring::default();
        for (source, logins) in responses.await {
            ring.add(&source, logins);
        }
        credentials::matching(&ring, manifest, image)
    }
}

/// Credentials from one plugin for a pod. A plugin with service account tokens is also run for pods
/// without an account, unless it requires one.
async fn for_pod(
    plugin: &Rc<Plugin>,
    manager: &RuntimeManager,
    manifest: &Manifest,
    image: &str,
) -> Result<(CredentialSource, Logins), CredentialPluginError> {
    let name = manifest.spec().service_account_name.as_deref();
    let name = name.filter(|name| !name.is_empty());
    let account = match (&plugin.provider.token_attributes, name) {
        (None, _) => None,
        (Some(attributes), None) if attributes.requires_service_account => {
            return Ok((CredentialSource::Node, Logins::new()));
        }
        (Some(_), None) => None,
        (Some(attributes), Some(name)) => {
            match service_account::issue_token(manager, manifest, name, attributes).await? {
                Some(account) => Some((attributes, account)),
                None => return Ok((CredentialSource::Node, Logins::new())),
            }
        }
    };
    let source = match &account {
        Some((_, account)) => CredentialSource::ServiceAccount(account.account.clone()),
        None => CredentialSource::Node,
    };
    let scope = account
        .as_ref()
        .map(|(attributes, account)| attributes.cache_scope(account));
    let cached = {
        let cache = plugin.cache.borrow();
        cache.get(image, scope.as_ref(), Timestamp::now()).cloned()
    };
    if let Some(logins) = cached {
        return Ok((source, logins));
    }
    let account = account.map(|(_, account)| account);
    Ok((source, call(plugin, image, account).await?))
}

/// The call in flight, or a new one.
fn call(
    plugin: &Rc<Plugin>,
    image: &str,
    account: Option<ServiceAccountToken>,
) -> Shared<LoginsFuture> {
    let mut in_flight = plugin.in_flight.borrow_mut();
    in_flight.retain(|_, call| call.upgrade().is_some_and(|a| a.peek().is_none()));
    let scope = account.as_ref().map(TokenAttributes::request_scope);
    let key = (image.to_owned(), scope);
    if let Some(call) = in_flight.get(&key).and_then(WeakShared::upgrade) {
        return call;
    }
    let (plugin, name) = (Rc::clone(plugin), image.to_owned());
    let call = async move {
        let provider = &plugin.provider;
        let request = request(&provider.api_version, &name, account.as_ref());
        let run = tokio::time::timeout(PLUGIN_TIMEOUT, run(&plugin, request)).await;
        let output = run.map_err(|_| CredentialPluginError::Timeout)??;
        let response = ProviderResponse::parse(&provider.api_version, &output)?;
        let mut scope = None;
        if let Some((attributes, account)) =
            provider.token_attributes.as_ref().zip(account.as_ref())
        {
            attributes.check_response(&response, account)?;
            scope = Some(attributes.cache_scope(account));
        }
        let now = Timestamp::now();
        let (default, mut cache) = (provider.default_cache_duration, plugin.cache.borrow_mut());
        cache.put((&name, scope), &response, default, now);
        Ok(response.logins)
    };
    let call = call.boxed_local().shared();
    if let Some(weak) = call.downgrade() {
        in_flight.insert(key, weak);
    }
    call
}

/// Runs the plugin with the request on its standard input; returns its standard output.
async fn run(plugin: &Plugin, request: Vec<u8>) -> Result<Vec<u8>, CredentialPluginError> {
    let failed = |error: std::io::Error| CredentialPluginError::Run(error.to_string());
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
            // A plugin that does not read its input may still respond.
            let _ = stdin.write_all(&request).await;
        }
    };
    let ((), output, stderr) = tokio::join!(
        write,
        read_limited(stdout, MAX_RESPONSE_BYTES),
        read_limited(stderr, MAX_STDERR_BYTES)
    );
    let status = child.wait().await.map_err(failed)?;
    if status.success() {
        return Ok(output);
    }
    let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
    Err(CredentialPluginError::Status {
        status: status.to_string(),
        stderr,
    })
}

/// The first `max` bytes; the rest is read and dropped, so that the plugin does not block.
async fn read_limited(pipe: Option<impl AsyncRead + Unpin>, max: u64) -> Vec<u8> {
    let mut read = Vec::new();
    if let Some(mut pipe) = pipe {
        // After a broken pipe, what was read before it counts.
        let _ = (&mut pipe).take(max).read_to_end(&mut read).await;
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
    read
}

/// The configuration files: one file, or all `.json`, `.yaml` and `.yml` files of a directory in the
/// order of their names.
fn read_files(path: &Path) -> Result<Vec<(String, String)>, PluginConfigError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| PluginConfigError::Read { path, source }
    };
    let mut files = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(failed(path))? {
            let file = entry.map_err(failed(path))?.path();
            let extension = file.extension().and_then(|extension| extension.to_str());
            if matches!(extension, Some("json" | "yaml" | "yml")) && !file.is_dir() {
                files.push(file);
            }
        }
        files.sort();
        if files.is_empty() {
            return Err(PluginConfigError::NoFile(path.to_owned()));
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
