//! Client credentials of the service.

use std::fs;
use std::time::Duration;

use polylet_e2e::ok;
use polylet_harness::Cluster;
use tokio::time::Instant;

use super::service::{Service, TIMEOUT};
use super::{PODS, create, pod};

/// The kubeconfig appears late, is invalid in several ways, becomes valid, and its certificate is
/// renewed.
pub(crate) async fn credentials(cluster: &Cluster) {
    let dir = cluster.scratch().join("late");
    let kubeconfig = dir.join("kubeconfig");
    let mut service = Service::new(&dir, &kubeconfig);
    service.start();
    let wait_for_error = async |fragment: &str| {
        let reported = service.problems(|all| all.iter().any(|p| p.message.contains(fragment)));
        println!("{fragment}: {} ms", reported.await.as_millis());
    };
    wait_for_error("kubeconfig").await;
    let put = |authority: &str, user: &str| {
        let server = cluster.server();
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: '{server}', \
             certificate-authority: '{authority}'}}}}]\nusers: [{{name: u, user: {user}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        );
        let aside = dir.join("aside");
        fs::write(&aside, text).unwrap();
        fs::rename(aside, &kubeconfig).unwrap();
    };
    let own = || {
        let nodes = ["system:nodes"];
        let (certificate, key) = ok(cluster.identity("late", "system:node:n1", &nodes));
        [certificate, key].map(|path| path.display().to_string())
    };
    let [certificate, key] = own();
    let user = format!("{{client-certificate: '{certificate}', client-key: '{key}'}}");
    let authority = cluster.authority().display().to_string();
    put(&certificate, &user);
    wait_for_error("invalid peer certificate").await;
    put(&authority, "{token: hunter2}");
    wait_for_error("Unauthorized").await;
    assert!(!service.log().contains("hunter2"));
    put(&authority, &user);
    let started = Instant::now();
    let mut pods = service.pods(false).await;
    pods.until("the pods", |pods| pods.contains_key("web"))
        .await;
    println!(
        "credentials right → pods: {} ms",
        started.elapsed().as_millis()
    );

    let watches = || {
        let (requests, _) = ok(cluster.requests(0));
        let lines = requests.iter().map(|request| request.line());
        lines.filter(|line| line.starts_with("watch pods")).count()
    };
    let before = (watches(), pods.changes);
    own();
    let started = Instant::now();
    while watches() == before.0 {
        assert!(started.elapsed() < TIMEOUT, "{}", service.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    create(cluster, PODS, &pod("late")).await;
    pods.until("a pod", |pods| pods.contains_key("late")).await;
    assert_eq!(pods.changes, before.1 + 1, "no other change was reported");
    service.problems(|all| all.is_empty()).await;
}
