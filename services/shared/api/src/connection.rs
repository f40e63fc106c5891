use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderValue;
use http::header::USER_AGENT;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tokio::time::sleep;
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

use crate::Access;
use crate::farewell::AskAgain;
use crate::kept;
use crate::plugin::{self, PluginError};
use crate::renewal::Files;

/// How long the server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// A connection is asked for a sign of life this often …
const PING: Duration = Duration::from_secs(5);
/// … and given up when none comes for as long.
const PONG: Duration = Duration::from_secs(5);

/// A program that gave no credentials is asked again after so long.
const AGAIN: Duration = Duration::from_secs(5);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be read or makes no sense.
    #[error("the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: KubeconfigError,
    },
    /// The kubeconfig is no YAML of a kubeconfig's shape. The parser's own words quote the lines
    /// around, and so perhaps a token: only the place is told.
    #[error("the kubeconfig {path}: {place}: not a kubeconfig's YAML")]
    Yaml {
        /// The file.
        path: PathBuf,
        /// `line 3 column 12`, as far as it is known.
        place: String,
    },
    /// The program that it names gives no credentials.
    #[error("the kubeconfig {path}: the program of its exec")]
    Plugin {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: PluginError,
    },
    /// Its certificates or keys cannot be used.
    #[error("the credentials that the kubeconfig {path} names")]
    Credentials {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: Box<kube::Error>,
    },
}

/// A client of the API server on a connection of its own. Clones share both.
#[derive(Clone)]
pub struct Connection {
    access: Access,
    made: Arc<Mutex<Option<Made>>>,
    /// Held by the one who runs the kubeconfig's program; when that failed last, and why.
    asking: Arc<tokio::sync::Mutex<Option<(Instant, PluginError)>>>,
}

struct Made {
    client: Client,
    files: Files,
    /// When its credentials end, where a program gave them.
    ends: Option<Timestamp>,
}

impl Connection {
    /// Nothing is opened before the first request.
    pub fn new(access: Access) -> Connection {
        Connection {
            access,
            made: Arc::default(),
            asking: Arc::default(),
        }
    }

    /// The client of the kubeconfig as it is now: another one once the file, or a certificate that it
    /// names, has changed. Requests under way keep the client that they began with.
    ///
    /// # Errors
    /// While the kubeconfig cannot be used: it is read anew at the next call.
    pub async fn client(&self) -> Result<Client, ConnectError> {
        if let Some(client) = self.current() {
            return Ok(client);
        }
        // One for all who wait: a program that gives credentials is not run for each of them.
        let mut asking = self.asking.lock().await;
        if let Some(client) = self.current() {
            return Ok(client);
        }
        let path = self.access.kubeconfig().to_owned();
        let wrong = |source| match source {
            KubeconfigError::Parse(error) => ConnectError::Yaml {
                path: path.clone(),
                place: place(&error.to_string()),
            },
            source => ConnectError::Kubeconfig {
                path: path.clone(),
                source,
            },
        };
        // Before the files are read: what changes meanwhile is noticed at the next call.
        let mut kubeconfig = Kubeconfig::read_from(&path).map_err(wrong)?;
        let files = Files::of(&path, Some(&kubeconfig)).and(self.access.kept());
        if let Some(kept) = self.access.kept() {
            kept::stand_in(&mut kubeconfig, kept);
        }
        let ends = given(&mut kubeconfig, &mut asking)
            .await
            .map_err(|source| ConnectError::Plugin {
                path: path.clone(),
                source,
            })?;
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(wrong)?;
        if config.proxy_url.is_some() {
            tracing::warn!(
                "a proxy is named (proxy-url in {}, or HTTPS_PROXY): the API server is asked without it",
                path.display()
            );
        }
        let client = client_of(config, self.access.user_agent()).map_err(|source| {
            ConnectError::Credentials {
                path: path.clone(),
                source: Box::new(source),
            }
        })?;
        let made = Made {
            client: client.clone(),
            files,
            ends,
        };
        *self.made() = Some(made);
        Ok(client)
    }

    /// The same, waited for: while the kubeconfig is missing or wrong, until it changes.
    pub async fn ready(&self) -> Client {
        let mut told = String::new();
        loop {
            let before = Files::of(self.access.kubeconfig(), None);
            match self.client().await {
                Ok(client) => return client,
                Err(error) => {
                    let why = polylet_kit::report(&error);
                    if why != told {
                        tracing::warn!("the API server is not reached: {why}");
                        told = why;
                    }
                    match error {
                        // It may succeed with nothing changed here.
                        ConnectError::Plugin { .. } => sleep(AGAIN).await,
                        _ => before.stirred().await,
                    }
                }
            }
        }
    }

    /// Resolves when the kubeconfig or a certificate has changed since the present client was made:
    /// long watches are begun anew then, as the old certificate may be about to end.
    pub async fn renewed(&self) {
        let files = self.made().as_ref().map(|made| made.files.clone());
        let now = || Files::of(self.access.kubeconfig(), None).and(self.access.kept());
        let files = files.unwrap_or_else(now);
        files.stirred().await;
        // Told once: who waits again, waits for the next change.
        let mut made = self.made();
        if made.as_ref().is_some_and(|made| made.files.changed()) {
            *made = None;
        }
    }

    /// The server did not take our credentials: they are read anew for the next request.
    pub fn refused(&self) {
        *self.made() = None;
    }

    fn current(&self) -> Option<Client> {
        let made = self.made();
        let ended = |made: &Made| made.ends.is_some_and(|at| at <= Timestamp::now());
        let made = made.as_ref().filter(|made| !made.files.changed())?;
        if ended(made) {
            return None;
        }
        Some(made.client.clone())
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Option<Made>> {
        // It is one value, replaced whole.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the kubeconfig's program gives, if it names one; one that has just failed is not run again.
async fn given(
    kubeconfig: &mut Kubeconfig,
    failed: &mut Option<(Instant, PluginError)>,
) -> Result<Option<Timestamp>, PluginError> {
    if let Some((at, error)) = failed
        && at.elapsed() < AGAIN
    {
        return Err(error.clone());
    }
    let given = plugin::stand_in(kubeconfig).await;
    *failed = given
        .as_ref()
        .err()
        .map(|error| (Instant::now(), error.clone()));
    given
}

/// The numbers of a parser's "line 3 column 12", and nothing else of what it says.
fn place(said: &str) -> String {
    let number = |word: &str| {
        let (_, rest) = said.split_once(word)?;
        let end = rest.find(|c: char| !c.is_ascii_digit());
        rest.get(..end.unwrap_or(rest.len()))?.parse::<u32>().ok()
    };
    match (number("line "), number("column ")) {
        (Some(line), Some(column)) => format!("line {line} column {column}"),
        _ => "somewhere".to_owned(),
    }
}

fn client_of(mut config: Config, user_agent: &str) -> kube::Result<Client> {
    if let Ok(value) = HeaderValue::from_str(user_agent) {
        config.headers.push((USER_AGENT, value));
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    // For servers or proxies that speak HTTP/1 only, where there are no pings.
    tcp.set_keepalive(Some(PING));
    tcp.set_keepalive_interval(Some(Duration::from_secs(2)));
    tcp.set_keepalive_retries(Some(3));
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols.clear();
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    let connector = match &config.tls_server_name {
        Some(name) => {
            let name = rustls::pki_types::ServerName::try_from(name.clone());
            let name = name.map_err(|error| kube::Error::Service(error.into()))?;
            connector.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name))
        }
        None => connector,
    };
    let connector = connector.enable_all_versions().wrap_connector(tcp);
    let service = hyper_util::client::legacy::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PONG)
        .http2_keep_alive_while_idle(true)
        .build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .layer(RetryLayer::new(AskAgain::new()))
        .map_err(BoxError::from)
        .service(service);
    Ok(Client::new(service, config.default_namespace.clone()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const TOKEN: &str = "hunter2";

    fn kubeconfig(server: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: k, cluster: {{server: '{server}', insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
        )
    }

    fn place(text: &str) -> (tempfile::TempDir, Connection) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kubeconfig");
        std::fs::write(&file, text).unwrap();
        let connection = Connection::new(Access::new(file, "test"));
        (directory, connection)
    }

    #[tokio::test]
    async fn what_is_wrong_names_the_file_and_no_secret() {
        let token = format!("token: {TOKEN}");
        for text in [
            String::new(),
            "users: [".to_owned(),
            format!("users:\n- user:\n    token: [{TOKEN}"),
            format!("users:\n- name: u\n  user:\n    token: {{a: {TOKEN}}}\n"),
            format!("users: {TOKEN}\n"),
            kubeconfig("no url at all", &token),
            kubeconfig(
                "https://127.0.0.1:1",
                &format!("client-certificate-data: {TOKEN}"),
            ),
            kubeconfig(
                "https://127.0.0.1:1",
                &format!(
                    "client-certificate: /nowhere/{}, client-key: /nowhere/k",
                    "c"
                ),
            ),
        ] {
            let (_directory, connection) = place(&text);
            let error = connection.client().await.map(drop).expect_err(&text);
            let said = polylet_kit::report(&error);
            assert!(said.contains("/kubeconfig"), "{said}");
            assert!(!said.contains(TOKEN), "{said}");
        }
    }

    /// A kubeconfig beside a program of this script, and the connection.
    fn with_program(script: &str) -> (tempfile::TempDir, Connection) {
        use std::os::unix::fs::PermissionsExt;
        // Relative to the kubeconfig, as upstream has it.
        let user = "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login, \
                    interactiveMode: Never, env: [{name: WHO, value: node}]}";
        let (directory, connection) = place(&kubeconfig("https://127.0.0.1:1", user));
        let program = directory.path().join("login");
        let text = format!(
            "#!/bin/sh\necho run >> {}/runs\n{script}\n",
            directory.path().display()
        );
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        (directory, connection)
    }

    fn runs(directory: &tempfile::TempDir) -> usize {
        let told = std::fs::read_to_string(directory.path().join("runs"));
        told.unwrap_or_default().lines().count()
    }

    fn gives(ends: &str) -> String {
        format!(
            r#"[ "$WHO" = node ] && echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"{TOKEN}","expirationTimestamp":"{ends}"}}}}'"#
        )
    }

    #[tokio::test]
    async fn a_program_is_asked_once_for_all_until_what_it_gave_ends() {
        let (directory, connection) = with_program(&gives("2999-01-01T00:00:00Z"));
        let three = futures::join!(
            connection.client(),
            connection.client(),
            connection.client()
        );
        assert!(three.0.is_ok() && three.1.is_ok() && three.2.is_ok());
        connection.client().await.unwrap();
        assert_eq!(runs(&directory), 1);
        // The server did not take it: there may be another one.
        connection.refused();
        connection.client().await.unwrap();
        assert_eq!(runs(&directory), 2);

        let (directory, connection) = with_program(&gives("2001-01-01T00:00:00Z"));
        for _ in 0..2 {
            connection.client().await.unwrap();
        }
        assert_eq!(runs(&directory), 2);
    }

    #[tokio::test]
    async fn a_program_that_fails_is_left_alone_for_a_moment_and_tells_no_secret() {
        let (directory, connection) = with_program(&format!("echo {TOKEN}; exit 3"));
        for _ in 0..3 {
            let error = connection.client().await.map(drop).unwrap_err();
            let said = polylet_kit::report(&error);
            assert!(
                said.contains("login") && said.contains("exit status: 3"),
                "{said}"
            );
            assert!(!said.contains(TOKEN), "{said}");
        }
        assert_eq!(runs(&directory), 1);
        let (_directory, connection) = with_program(&format!("echo {TOKEN}"));
        let error = connection.client().await.map(drop).unwrap_err();
        assert!(!polylet_kit::report(&error).contains(TOKEN));
    }

    #[tokio::test]
    async fn a_program_that_hangs_holds_up_nothing_else() {
        let (directory, connection) = with_program("exec sleep 1000");
        let asked = tokio::spawn(async move { connection.client().await.map(drop) });
        // This thread is the only one: it goes on while the program runs.
        timeout(Duration::from_secs(10), async {
            while runs(&directory) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
        assert!(!asked.is_finished());
        asked.abort();
    }

    #[tokio::test]
    async fn a_replaced_file_is_noticed_and_gives_another_client() {
        let user = format!("token: {TOKEN}");
        let (directory, connection) = place("");
        let waiting = connection.clone();
        let ready = tokio::spawn(async move { waiting.ready().await });
        tokio::task::yield_now().await;
        let file = directory.path().join("kubeconfig");
        let replace = |server: &str| {
            let aside = directory.path().join("aside");
            std::fs::write(&aside, kubeconfig(server, &user)).unwrap();
            std::fs::rename(&aside, &file).unwrap();
        };
        replace("https://127.0.0.1:1");
        timeout(Duration::from_secs(10), ready)
            .await
            .unwrap()
            .unwrap();
        let renewed = connection.renewed();
        tokio::pin!(renewed);
        assert!(
            timeout(Duration::from_millis(10), &mut renewed)
                .await
                .is_err()
        );
        replace("https://127.0.0.1:2");
        timeout(Duration::from_secs(10), renewed).await.unwrap();
        assert!(connection.current().is_none());
        // Whoever has heard of it and waits again, without a request in between, waits for the next.
        let again = timeout(Duration::from_millis(10), connection.renewed());
        assert!(again.await.is_err());
        connection.client().await.unwrap();
        assert!(connection.current().is_some());
        connection.refused();
        assert!(connection.current().is_none());
    }
}
