//! Which client there is now.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use kube::Client;
use kube::config::Kubeconfig;
use tokio::time::sleep;

use crate::client::{self, Made};
use crate::plugin::{self, Programs};
use crate::renewal::Files;
use crate::{Access, ConnectError};

/// A client of the API server on a connection of its own. Clones share both.
#[derive(Clone)]
pub struct Connection {
    access: Access,
    made: Arc<Mutex<Option<Made>>>,
    /// Held by the one who makes the next client.
    making: Arc<tokio::sync::Mutex<Programs>>,
}

impl Connection {
    /// Nothing is opened before the first request.
    pub fn new(access: Access) -> Connection {
        Connection {
            access,
            made: Arc::default(),
            making: Arc::default(),
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
        let mut programs = self.making.lock().await;
        if let Some(client) = self.current() {
            return Ok(client);
        }
        let made = client::make(&self.access, &mut programs).await?;
        let client = made.client.clone();
        *self.made() = Some(made);
        Ok(client)
    }

    /// The same, waited for: while the kubeconfig is missing or wrong, until it changes.
    pub async fn ready(&self) -> Client {
        let mut told = String::new();
        loop {
            let before = self.files();
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
                        ConnectError::Plugin { .. } => sleep(plugin::AGAIN).await,
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
        let files = files.unwrap_or_else(|| self.files());
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

    /// The files that a client would be made of now. One that cannot be made yet may wait for any.
    fn files(&self) -> Files {
        let path = self.access.kubeconfig();
        let kubeconfig = Kubeconfig::read_from(path).ok();
        Files::of(path, kubeconfig.as_ref()).and(self.access.kept())
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Option<Made>> {
        // It is one value, replaced whole.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
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
