//! How the service proves who it is.

use std::fs;
use std::time::Duration;

use polylet_e2e::ok;
use polylet_harness::Cluster;
use tokio::time::Instant;

use super::service::{PATIENCE, Service};
use super::{PODS, create, pod};

/// The kubeconfig comes late, is wrong in several ways, is right, and has its certificate renewed.
pub(crate) async fn credentials(cluster: &Cluster) {
    let dir = cluster.scratch().join("late");
    let kubeconfig = dir.join("kubeconfig");
    let mut service = Service::new(&dir, &kubeconfig);
    service.start();
    let says = async |word: &str| {
        let told = service.problems(|all| all.iter().any(|p| p.message.contains(word)));
        println!("{word}: {} ms", told.await.as_millis());
    };
    says("kubeconfig").await;
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
    says("invalid peer certificate").await;
    put(&authority, "{token: hunter2}");
    says("Unauthorized").await;
    assert!(!service.log().contains("hunter2"));
    put(&authority, &user);
    let begun = Instant::now();
    let mut pods = service.pods(false).await;
    pods.until("the pods", |pods| pods.contains_key("web"))
        .await;
    println!(
        "credentials right → pods: {} ms",
        begun.elapsed().as_millis()
    );

    let watches = || {
        let (requests, _) = ok(cluster.requests(0));
        let lines = requests.iter().map(|request| request.line());
        lines.filter(|line| line.starts_with("watch pods")).count()
    };
    let before = (watches(), pods.changes);
    own();
    let begun = Instant::now();
    while watches() == before.0 {
        assert!(begun.elapsed() < PATIENCE, "{}", service.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    create(cluster, PODS, &pod("late")).await;
    pods.until("a pod", |pods| pods.contains_key("late")).await;
    assert_eq!(pods.changes, before.1 + 1, "nothing else was told");
    service.problems(|all| all.is_empty()).await;
}
