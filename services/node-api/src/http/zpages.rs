//! `/statusz` and `/flagz`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT, WARNING};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use jiff::Timestamp;
use polylet_kit::Ctx;
use polylet_model::node::KUBERNETES_VERSION;
use serde_json::Value;

use crate::core::page_form::{
    Encoding, NotAcceptable, PageForm, PageKind, negotiate, not_acceptable,
};
use crate::core::zpages::{ComponentStatus, Flags, flags_structure, flags_text};

/// Clients of people, to whom JSON is indented, as upstream.
const INDENTED_FOR: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];

/// What the pages say.
#[derive(Debug)]
pub(crate) struct ZPages {
    status: ComponentStatus,
    flags: Flags,
    has_status: bool,
    has_flags: bool,
}

impl ZPages {
    pub(crate) fn new(ctx: &Ctx) -> Self {
        let gates = &ctx.config().kubelet.feature_gates;
        let is_on = |gate: &str| gates.get(gate) != Some(&false);
        let has_flags = is_on("ComponentFlagz");
        // Upstream's: those that are no services of its web framework.
        let paths = ["/configz", "/debug", "/flagz", "/healthz", "/metrics"];
        let paths = paths.into_iter();
        Self {
            status: ComponentStatus {
                started_at: Timestamp::now(),
                version: KUBERNETES_VERSION,
                paths: paths
                    .filter(|path| has_flags || *path != "/flagz")
                    .collect(),
            },
            flags: flags(ctx),
            has_status: is_on("ComponentStatusz"),
            has_flags,
        }
    }
}

/// Upstream's flags that are not fields of its configuration file, as they are in effect.
fn flags(ctx: &Ctx) -> Flags {
    let polylet = &ctx.config().polylet;
    let path = |path: &std::path::Path| path.display().to_string();
    let optional = |given: &Option<std::path::PathBuf>| given.as_deref().map(path);
    let optional = |given| optional(given).unwrap_or_default();
    let addresses = [polylet.node_ip, polylet.secondary_node_ip];
    let addresses = addresses.iter().flatten().map(ToString::to_string);
    let labels = polylet.node_labels.iter();
    let labels = labels.map(|(name, value)| format!("{name}={value}"));
    Flags::from([
        (
            "bootstrap-kubeconfig",
            optional(&polylet.bootstrap_kubeconfig),
        ),
        ("cert-dir", path(&polylet.cert_directory())),
        ("cloud-provider", polylet.cloud_provider.clone()),
        ("config", path(&ctx.config().path)),
        ("hostname-override", polylet.node_name.clone()),
        (
            "image-credential-provider-bin-dir",
            optional(&polylet.image_credential_provider_bin_dir),
        ),
        (
            "image-credential-provider-config",
            optional(&polylet.image_credential_provider_config_file),
        ),
        ("kubeconfig", optional(&polylet.kubeconfig)),
        ("node-ip", addresses.collect::<Vec<_>>().join(",")),
        ("node-labels", labels.collect::<Vec<_>>().join(",")),
        ("root-dir", path(&polylet.root_directory)),
    ])
}

/// The pages that feature gates do not switch off. As upstream, every method gets them.
pub(crate) fn router(pages: &Arc<ZPages>) -> Router {
    let mut router = Router::new();
    if pages.has_status {
        router = router.route("/statusz", any(statusz));
    }
    if pages.has_flags {
        router = router.route("/flagz", any(flagz));
    }
    router.with_state(Arc::clone(pages))
}

type Pairs = Vec<(String, String)>;

async fn statusz(
    State(pages): State<Arc<ZPages>>,
    Query(query): Query<Pairs>,
    headers: HeaderMap,
) -> Response {
    let now = Timestamp::now();
    respond(PageKind::Statusz, &query, &headers, |form| match form {
        PageForm::Text => PageContent::Text(pages.status.text(now)),
        PageForm::Structure { version, .. } => {
            PageContent::Structure(pages.status.structure(version, now))
        }
    })
}

async fn flagz(
    State(pages): State<Arc<ZPages>>,
    Query(query): Query<Pairs>,
    headers: HeaderMap,
) -> Response {
    respond(PageKind::Flagz, &query, &headers, |form| match form {
        PageForm::Text => PageContent::Text(flags_text(&pages.flags)),
        PageForm::Structure { version, .. } => {
            PageContent::Structure(flags_structure(&pages.flags, version))
        }
    })
}

enum PageContent {
    Text(String),
    Structure(Value),
}

fn respond(
    page: PageKind,
    query: &[(String, String)],
    headers: &HeaderMap,
    content: impl FnOnce(PageForm) -> PageContent,
) -> Response {
    let header = |name| {
        let value = headers.get(name);
        let value = value.and_then(|value: &axum::http::HeaderValue| value.to_str().ok());
        value.unwrap_or_default()
    };
    let pretty = is_pretty(query, header(USER_AGENT));
    let form = match negotiate(header(ACCEPT), pretty, page) {
        Ok(form) => form,
        Err(error) => return refused(error, pretty),
    };
    let body = match (content(form), form) {
        (
            PageContent::Structure(value),
            PageForm::Structure {
                encoding, pretty, ..
            },
        ) => encode(&value, encoding, pretty),
        (PageContent::Structure(value), PageForm::Text) => value.to_string(),
        (PageContent::Text(text), _) => text,
    };
    let media_type = [(CONTENT_TYPE, form.media_type(page))];
    let warning = form.warning(page).map(|warning| [(WARNING, warning)]);
    (media_type, warning, body).into_response()
}

fn is_pretty(query: &[(String, String)], agent: &str) -> bool {
    let given = query.iter().find(|(name, _)| name == "pretty");
    match given.map(|(_, value)| value.as_str()) {
        Some(value) if !value.is_empty() => {
            matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
        }
        _ => INDENTED_FOR.iter().any(|name| agent.starts_with(name)),
    }
}

fn encode(value: &Value, encoding: Encoding, pretty: bool) -> String {
    match encoding {
        Encoding::Yaml => serde_yaml_ng::to_string(value).unwrap_or_default(),
        Encoding::Json if pretty => format!("{value:#}\n"),
        Encoding::Json => format!("{value}\n"),
    }
}

fn refused(error: NotAcceptable, pretty: bool) -> Response {
    let status = not_acceptable();
    let (media_type, body) = match error.encoding {
        Some(encoding) => (encoding.media_type(), encode(&status, encoding, pretty)),
        None => (Encoding::Json.media_type(), format!("{status:#}")),
    };
    let headers = [(CONTENT_TYPE, media_type)];
    (StatusCode::NOT_ACCEPTABLE, headers, body).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use serde_json::json;
    use tower::ServiceExt;

    use super::*;

    async fn get(has_flags: bool, path: &str, accept: &str) -> (u16, HeaderMap, String) {
        let pages = Arc::new(ZPages {
            status: ComponentStatus {
                started_at: Timestamp::now(),
                version: KUBERNETES_VERSION,
                paths: vec!["/configz"],
            },
            flags: Flags::from([("root-dir", "/x".to_owned())]),
            has_status: true,
            has_flags,
        });
        let request = Request::builder().method("POST").uri(path);
        let request = request.header(ACCEPT, accept).body(Body::empty()).unwrap();
        let response = router(&pages).oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, 10_000).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        (parts.status.as_u16(), parts.headers, body)
    }

    #[tokio::test]
    async fn pages_are_text_or_structures() {
        let (code, headers, body) = get(true, "/statusz", "*/*").await;
        assert_eq!(
            (code, &headers[CONTENT_TYPE]),
            (200, &"text/plain; charset=utf-8".parse().unwrap())
        );
        assert!(body.starts_with("\nkubelet statusz\n"), "{body}");
        let accept = "application/yaml;as=Flagz;g=config.k8s.io;v=v1alpha1";
        let (code, headers, body) = get(true, "/flagz", accept).await;
        assert_eq!((code, headers.contains_key(WARNING)), (200, true));
        let parsed: Value = serde_yaml_ng::from_str(&body).unwrap();
        assert_eq!(parsed["flags"], json!({"root-dir": "/x"}));
    }

    #[tokio::test]
    async fn refusals_are_statuses() {
        for (accept, indented) in [("application/json", false), ("text/html", true)] {
            let (code, headers, body) = get(true, "/statusz", accept).await;
            assert_eq!(
                (code, &headers[CONTENT_TYPE]),
                (406, &"application/json".parse().unwrap())
            );
            assert_eq!(body.contains("\n  "), indented, "{body}");
            let status: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(status["reason"], "NotAcceptable");
        }
    }

    #[tokio::test]
    async fn pages_are_switched_off_by_feature_gates() {
        assert_eq!(get(false, "/flagz", "").await.0, 404);
        assert_eq!(get(false, "/statusz", "").await.0, 200);
    }
}
