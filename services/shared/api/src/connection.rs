use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use kube::Client;
use tokio::time::sleep;

use crate::client::{self, BuiltClient};
use crate::credential_files::CredentialFiles;
use crate::exec_credential::{self, PluginRunner};
use crate::kubeconfig;
use crate::{ClientConfig, ConnectError};

/// A client of the API server on a connection of its own. Clones share both.
#[derive(Clone)]
pub struct ApiConnection {
    config: ClientConfig,
    built: Arc<Mutex<Option<BuiltClient>>>,
    /// Locked while the next client is built.
    plugins: Arc<tokio::sync::Mutex<PluginRunner>>,
}

impl ApiConnection {
    /// Opens nothing: the connection is made for the first request.
    pub fn new(config: ClientConfig) -> ApiConnection {
        ApiConnection {
            config,
            built: Arc::default(),
            plugins: Arc::default(),
        }
    }

    /// The client of the present kubeconfig. It is rebuilt once the file, or a certificate that it
    /// refers to, has changed; requests in flight keep their client.
    ///
    /// # Errors
    /// While the kubeconfig is unusable; the next call reads it again.
    pub async fn client(&self) -> Result<Client, ConnectError> {
        if let Some(client) = self.current() {
            return Ok(client);
        }
        // One build for all callers: a credential plugin does not run for each of them.
        let mut plugins = self.plugins.lock().await;
        if let Some(client) = self.current() {
            return Ok(client);
        }
        let built = client::build(&self.config, &mut plugins).await?;
        let client = built.client.clone();
        *self.built() = Some(built);
        Ok(client)
    }

    /// The same, waiting for a change of the kubeconfig while it is missing or unusable.
    pub async fn ready(&self) -> Client {
        if let Some(client) = self.current() {
            return client;
        }
        let mut last_error = String::new();
        loop {
            // As of before the attempt: a change during it counts.
            let files = self.files();
            match self.client().await {
                Ok(client) => return client,
                Err(error) => {
                    let text = polylet_kit::report(&error);
                    if text != last_error {
                        tracing::warn!(error = text, "no client for the API server; waiting");
                        last_error = text;
                    }
                    match error {
                        // The plugin may succeed although no file has changed.
                        ConnectError::Plugin { .. } => sleep(exec_credential::RETRY_DELAY).await,
                        _ => files.changed().await,
                    }
                }
            }
        }
    }

    /// Resolves when the kubeconfig or a certificate has changed since the present client was built.
    /// Long watches then start again, as the old certificate may be about to expire.
    pub async fn credentials_changed(&self) {
        let files = self.built().as_ref().map(|built| built.files.clone());
        let files = files.unwrap_or_else(|| self.files());
        files.changed().await;
        // Each change resolves one wait: the next one is for the next change.
        let mut built = self.built();
        if built
            .as_ref()
            .is_some_and(|built| built.files.have_changed())
        {
            *built = None;
        }
    }

    /// Drops the client after the server has rejected its credentials: the next request reads them
    /// again.
    pub fn invalidate(&self) {
        *self.built() = None;
    }

    /// The client built last, while it is still valid.
    pub(crate) fn current(&self) -> Option<Client> {
        let built = self.built();
        let built = built.as_ref().filter(|built| !built.files.have_changed())?;
        if built.expires_at.is_some_and(|at| at <= Timestamp::now()) {
            return None;
        }
        Some(built.client.clone())
    }

    /// The present files that a client would be built from.
    fn files(&self) -> CredentialFiles {
        let path = self.config.kubeconfig();
        let kubeconfig = kubeconfig::read(path).ok();
        CredentialFiles::new(path, kubeconfig.as_ref()).with(self.config.client_cert())
    }

    fn built(&self) -> std::sync::MutexGuard<'_, Option<BuiltClient>> {
        // A single value, replaced at once: a panic cannot leave it inconsistent.
        self.built.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

    fn write_kubeconfig(text: &str) -> (tempfile::TempDir, ApiConnection) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kubeconfig");
        std::fs::write(&file, text).unwrap();
        let connection = ApiConnection::new(ClientConfig::new(file, "test"));
        (directory, connection)
    }

    #[tokio::test]
    async fn errors_name_the_file_and_no_secret() {
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
            let (_directory, connection) = write_kubeconfig(&text);
            let error = connection.client().await.map(drop).expect_err(&text);
            let message = polylet_kit::report(&error);
            assert!(message.contains("/kubeconfig"), "{message}");
            assert!(!message.contains(TOKEN), "{message}");
        }
    }

    /// A kubeconfig beside a plugin with this script, and the connection.
    fn with_plugin(script: &str) -> (tempfile::TempDir, ApiConnection) {
        use std::os::unix::fs::PermissionsExt;
        // Upstream resolves the command relative to the kubeconfig.
        let user = "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login, \
                    interactiveMode: Never, env: [{name: WHO, value: node}]}";
        let (directory, connection) = write_kubeconfig(&kubeconfig("https://127.0.0.1:1", user));
        let plugin = directory.path().join("login");
        let text = format!(
            "#!/bin/sh\necho run >> {}/runs\n{script}\n",
            directory.path().display()
        );
        std::fs::write(&plugin, text).unwrap();
        std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
        (directory, connection)
    }

    fn runs(directory: &tempfile::TempDir) -> usize {
        let runs = std::fs::read_to_string(directory.path().join("runs"));
        runs.unwrap_or_default().lines().count()
    }

    fn prints_credential(expires_at: &str) -> String {
        format!(
            r#"[ "$WHO" = node ] && echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"{TOKEN}","expirationTimestamp":"{expires_at}"}}}}'"#
        )
    }

    #[tokio::test]
    async fn a_plugin_runs_once_for_all_callers_until_its_credentials_expire() {
        let (directory, connection) = with_plugin(&prints_credential("2999-01-01T00:00:00Z"));
        let three = futures::join!(
            connection.client(),
            connection.client(),
            connection.client()
        );
        assert!(three.0.is_ok() && three.1.is_ok() && three.2.is_ok());
        connection.client().await.unwrap();
        assert_eq!(runs(&directory), 1);
        // Rejected by the server: the plugin may return another token.
        connection.invalidate();
        connection.client().await.unwrap();
        assert_eq!(runs(&directory), 2);

        let (directory, connection) = with_plugin(&prints_credential("2001-01-01T00:00:00Z"));
        for _ in 0..2 {
            connection.client().await.unwrap();
        }
        assert_eq!(runs(&directory), 2);
    }

    #[tokio::test]
    async fn a_failed_plugin_is_not_run_again_at_once_and_leaks_no_secret() {
        let (directory, connection) = with_plugin(&format!("echo {TOKEN}; exit 3"));
        for _ in 0..3 {
            let error = connection.client().await.map(drop).unwrap_err();
            let message = polylet_kit::report(&error);
            assert!(
                message.contains("login") && message.contains("exit status: 3"),
                "{message}"
            );
            assert!(!message.contains(TOKEN), "{message}");
        }
        assert_eq!(runs(&directory), 1);
        let (_directory, connection) = with_plugin(&format!("echo {TOKEN}"));
        let error = connection.client().await.map(drop).unwrap_err();
        assert!(!polylet_kit::report(&error).contains(TOKEN));
    }

    #[tokio::test]
    async fn a_plugin_that_hangs_does_not_block_the_thread() {
        let (directory, connection) = with_plugin("exec sleep 1000");
        let request = tokio::spawn(async move { connection.client().await.map(drop) });
        // The only thread goes on while the plugin runs.
        timeout(Duration::from_secs(10), async {
            while runs(&directory) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
        assert!(!request.is_finished());
        request.abort();
    }

    #[tokio::test]
    async fn a_replaced_kubeconfig_is_noticed_and_the_client_rebuilt() {
        let user = format!("token: {TOKEN}");
        let (directory, connection) = write_kubeconfig("");
        let waiting = connection.clone();
        let ready = tokio::spawn(async move { waiting.ready().await });
        tokio::task::yield_now().await;
        let file = directory.path().join("kubeconfig");
        let replace = |server: &str| {
            let temporary = directory.path().join("temporary");
            std::fs::write(&temporary, kubeconfig(server, &user)).unwrap();
            std::fs::rename(&temporary, &file).unwrap();
        };
        replace("https://127.0.0.1:1");
        timeout(Duration::from_secs(10), ready)
            .await
            .unwrap()
            .unwrap();
        let changed = connection.credentials_changed();
        tokio::pin!(changed);
        assert!(
            timeout(Duration::from_millis(10), &mut changed)
                .await
                .is_err()
        );
        replace("https://127.0.0.1:2");
        timeout(Duration::from_secs(10), changed).await.unwrap();
        assert!(connection.current().is_none());
        // A second wait without a request in between is for the next change.
        let again = timeout(Duration::from_millis(10), connection.credentials_changed());
        assert!(again.await.is_err());
        connection.client().await.unwrap();
        assert!(connection.current().is_some());
        connection.invalidate();
        assert!(connection.current().is_none());
    }
}
