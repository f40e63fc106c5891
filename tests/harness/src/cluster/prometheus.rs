use std::fs;

use serde_json::{Value, json};

use super::{Cluster, Component};
use crate::error::{HarnessError, file};
use crate::wait::{Poll, until};
use crate::{http, machine, packages};

/// A Prometheus server that scrapes one node. Dropping it ends it.
#[derive(Debug)]
pub struct Prometheus {
    component: Component,
    port: u16,
}

impl Cluster {
    /// Debian's Prometheus, unpacked and not installed, with these groups of rules. It scrapes the
    /// node every two seconds through the API server: `/metrics` as the job `kubelet`,
    /// `/metrics/cadvisor` as `cadvisor`. Its data are its own by its name.
    ///
    /// # Errors
    /// Fails if the package cannot be had, or the program does not start: it refuses invalid rules.
    pub async fn prometheus(
        &self,
        name: &'static str,
        node: &str,
        groups: &Value,
    ) -> Result<Prometheus, HarnessError> {
        let program = packages::aside("prometheus", "prometheus")?;
        let dir = self.scratch().join(name);
        file("make", &dir, fs::create_dir_all(&dir))?;
        let (certificate, key) = self.identity(name, "prometheus", &["system:masters"])?;
        let (config, rules) = (dir.join("prometheus.json"), dir.join("rules.json"));
        let server = self.server();
        let job = |job: &str, path: &str| {
            json!({
                "job_name": job, "scheme": "https",
                "metrics_path": format!("/api/v1/nodes/{node}/proxy{path}"),
                "tls_config": {
                    "ca_file": self.authority(), "cert_file": certificate, "key_file": key,
                },
                "static_configs": [{
                    "targets": [server.trim_start_matches("https://")],
                    "labels": { "instance": node, "node": node, "cluster": "test" },
                }],
            })
        };
        let text = json!({
            "global": { "scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s" },
            "rule_files": [rules],
            "scrape_configs": [job("kubelet", "/metrics"), job("cadvisor", "/metrics/cadvisor")],
        });
        file("write", &config, fs::write(&config, text.to_string()))?;
        let groups = json!({ "groups": groups });
        file("write", &rules, fs::write(&rules, groups.to_string()))?;
        let port = machine::free_port()?;
        let args = vec![
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", dir.join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--enable-feature=exemplar-storage".to_owned(),
            "--log.level=warn".to_owned(),
        ];
        let mut component = Component::new(name, &program, args, self.scratch());
        component.start()?;
        let mut prometheus = Prometheus { component, port };
        prometheus.ready().await?;
        Ok(prometheus)
    }
}

impl Prometheus {
    async fn ready(&mut self) -> Result<(), HarnessError> {
        let port = self.port;
        let component = &mut self.component;
        let mut ended = None;
        until("Prometheus to be ready", || {
            ended = component.try_exit_status();
            let gone = ended.is_some();
            async move {
                match http::get("127.0.0.1", port, "/-/ready").await {
                    Ok(response) if response.code() == 200 => Poll::Ready(()),
                    _ if gone => Poll::Ready(()),
                    Ok(response) => Poll::Pending(response.status),
                    Err(error) => Poll::Pending(crate::error::report(&error)),
                }
            }
        })
        .await?;
        match ended {
            Some(status) => Err(self.component.failure(status)),
            None => Ok(()),
        }
    }

    /// The present results of an expression, each with its labels and value.
    ///
    /// # Errors
    /// Fails if it does not respond, or refuses the expression.
    pub async fn query(&self, expression: &str) -> Result<Vec<Value>, HarnessError> {
        let encoded: String = expression.bytes().map(encoded).collect();
        let path = format!("/api/v1/query?query={encoded}");
        self.list(&path, "/data/result").await
    }

    /// Series with the exemplars that an expression selects, of all time.
    ///
    /// # Errors
    /// See [`Prometheus::query`].
    pub async fn query_exemplars(&self, expression: &str) -> Result<Vec<Value>, HarnessError> {
        let encoded: String = expression.bytes().map(encoded).collect();
        let path = format!("/api/v1/query_exemplars?query={encoded}&start=0&end=9999999999");
        self.list(&path, "/data").await
    }

    async fn list(&self, path: &str, pointer: &str) -> Result<Vec<Value>, HarnessError> {
        let response = http::get("127.0.0.1", self.port, path).await?;
        let answer: Value = serde_json::from_str(&response.body).unwrap_or_default();
        match answer.pointer(pointer).and_then(Value::as_array) {
            Some(results) if response.code() == 200 => Ok(results.clone()),
            _ => Err(HarnessError::Failed {
                program: format!("query {path}"),
                status: response.status,
                output: response.body,
            }),
        }
    }
}

fn encoded(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    }
}
