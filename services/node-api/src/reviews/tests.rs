use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;

const TTLS: CacheTtls = CacheTtls {
    tokens: Duration::from_secs(120),
    allowed: Duration::from_secs(300),
    denied: Duration::from_secs(30),
};

/// An API server that knows the tokens that begin with `good`, and lets their users read.
#[derive(Clone)]
struct ReviewServer {
    requests: Arc<Mutex<Vec<Value>>>,
    active: Arc<AtomicUsize>,
    most_active: Arc<AtomicUsize>,
    open: watch::Sender<bool>,
}

impl ReviewServer {
    async fn start() -> (Self, Reviews, tempfile::TempDir) {
        let server = Self {
            requests: Arc::default(),
            active: Arc::default(),
            most_active: Arc::default(),
            open: watch::Sender::new(true),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(review))
            .route(
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                post(review),
            )
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: k, cluster: {{server: 'http://{address}'}}}}]\n\
             users: [{{name: u, user: {{token: node}}}}]\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        let access = ClientConfig::new(kubeconfig, "node-api");
        (server, Reviews::new(access, "n1", TTLS), directory)
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

async fn review(State(server): State<ReviewServer>, Json(mut review): Json<Value>) -> Json<Value> {
    server.requests.lock().unwrap().push(review.clone());
    let active = server.active.fetch_add(1, Ordering::SeqCst) + 1;
    server.most_active.fetch_max(active, Ordering::SeqCst);
    let mut open = server.open.subscribe();
    open.wait_for(|open| *open).await.unwrap();
    server.active.fetch_sub(1, Ordering::SeqCst);
    let spec = &review["spec"];
    review["status"] = match spec["token"].as_str() {
        Some(token) if token.starts_with("good") => {
            json!({"authenticated": true, "user": {"username": token}})
        }
        Some(_) => json!({"authenticated": false}),
        None => json!({"allowed": spec["resourceAttributes"]["verb"] == "get"}),
    };
    Json(review)
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn is_limited<T>(result: &Result<T, Arc<ReviewError>>) -> bool {
    matches!(result, Err(error) if matches!(**error, ReviewError::TooMany))
}

#[tokio::test]
async fn flood_of_bad_tokens_neither_reaches_the_api_server_nor_flushes_good_ones() {
    let (server, reviews, _directory) = ReviewServer::start().await;
    for n in 0..8 {
        let user = reviews.authenticate(&format!("good {n}"), address(1)).await;
        assert_eq!(user.unwrap().unwrap().name, format!("good {n}"));
    }
    let begun = std::time::Instant::now();
    let tokens: Vec<String> = (0..4096).map(|n| format!("bad {n}")).collect();
    let flood = tokens
        .iter()
        .map(|token| reviews.authenticate(token, address(2)));
    let flood = join_all(flood).await;
    let limited = flood.iter().filter(|result| is_limited(result)).count();
    assert!(flood.iter().all(|r| is_limited(r) || matches!(r, Ok(None))));

    // The burst of one address and its rate, as long as the flood took.
    let allowed = 32 + 8 * (begun.elapsed().as_secs() as usize + 1);
    let sent = server.count() - 8;
    assert!(sent <= allowed, "{sent} reviews, {allowed} allowed");
    assert_eq!(sent + limited, 4096);
    assert!(server.most_active.load(Ordering::SeqCst) <= 8);

    let conditions = polylet_kit::HealthConditions::of_process().to_wire();
    let (reason, object) = ("TooManyReviews", address(2).to_string());
    let mut named = conditions.iter();
    assert!(named.any(|one| one.reason == reason && one.object == object));

    // Neither those who were there before nor those at other addresses feel it.
    let before = server.count();
    for n in 0..8 {
        let user = reviews.authenticate(&format!("good {n}"), address(2)).await;
        assert!(user.unwrap().is_some());
    }
    assert_eq!(server.count(), before, "served from the cache");
    let user = reviews.authenticate("good and new", address(3)).await;
    assert!(user.unwrap().is_some());
    assert_eq!(server.count(), before + 1);
}

#[tokio::test]
async fn one_review_serves_all_who_wait_for_it() {
    let (server, reviews, _directory) = ReviewServer::start().await;
    server.open.send_replace(false);
    let waiting = (0..100).map(|_| reviews.authenticate("good", address(1)));
    let released = async {
        // The first one may give up: the others still get the result.
        let mut open = server.open.subscribe();
        while server.count() == 0 {
            tokio::task::yield_now().await;
        }
        server.open.send_replace(true);
        open.wait_for(|open| *open).await.unwrap();
    };
    let (users, ()) = tokio::join!(join_all(waiting), released);
    assert!(users.iter().all(|user| user.as_ref().unwrap().is_some()));
    assert_eq!(server.count(), 1);

    let user = UserInfo {
        name: "someone".to_owned(),
        ..UserInfo::default()
    };
    for (verb, allowed) in [("get", true), ("create", false)] {
        let waiting = (0..10).map(|_| reviews.authorize(&user, verb, "pods", address(1)));
        for found in join_all(waiting).await {
            assert_eq!(found.unwrap(), allowed);
        }
    }
    assert_eq!(server.count(), 3);
    let last = server.requests.lock().unwrap().pop().unwrap();
    assert_eq!(
        last["spec"]["resourceAttributes"],
        json!({"verb": "create", "version": "v1", "resource": "nodes", "subresource": "pods",
            "name": "n1"})
    );
}

#[tokio::test]
async fn a_review_survives_the_client_that_asked_first() {
    let (server, reviews, _directory) = ReviewServer::start().await;
    server.open.send_replace(false);
    let first = {
        let reviews = reviews.clone();
        tokio::spawn(async move { reviews.authenticate("good", address(1)).await.is_ok() })
    };
    while server.count() == 0 {
        tokio::task::yield_now().await;
    }
    let second = reviews.authenticate("good", address(2));
    tokio::pin!(second);
    assert!(futures::poll!(second.as_mut()).is_pending());
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    server.open.send_replace(true);
    assert!(second.await.unwrap().is_some());
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn oversized_tokens_are_rejected_without_a_review() {
    let (server, reviews, _directory) = ReviewServer::start().await;
    let token = format!("good{}", "x".repeat(16 << 10));
    assert_eq!(
        reviews.authenticate(&token, address(1)).await.unwrap(),
        None
    );
    assert_eq!(server.count(), 0);
    let longest = &token[..16 << 10];
    assert!(
        reviews
            .authenticate(longest, address(1))
            .await
            .unwrap()
            .is_some()
    );
}
