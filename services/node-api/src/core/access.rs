//! Who may ask what.
//!
//! Upstream's rules: the verb comes from the method; the resource is `nodes` with a subresource that
//! follows from the path, and each candidate is tried until one allows.

/// How requests are authorised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Whoever is known may do everything.
    AlwaysAllow,
    /// The API server decides (SubjectAccessReview).
    Webhook,
}

/// Who is asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Nobody known.
    Anonymous,
    /// The common name and organisations of a client certificate signed by the client CA.
    Known { name: String, groups: Vec<String> },
}

/// The answer to a request before it is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allow,
    /// 401: not known.
    Unauthorized,
    /// 403, with the reason.
    Forbidden(String),
}

/// What a review would be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) verb: &'static str,
    /// In the order in which they are tried.
    pub(crate) subresources: Vec<&'static str>,
}

/// The attributes of a request.
pub(crate) fn attributes(method: &str, path: &str) -> Attributes {
    let verb = match method {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "get",
    };
    let below = |prefix: &str| path == prefix || path.starts_with(&format!("{prefix}/"));
    let subresources = if below("/stats") {
        vec!["stats"]
    } else if below("/metrics") {
        vec!["metrics"]
    } else if below("/logs") {
        vec!["log"]
    } else if below("/checkpoint") {
        vec!["checkpoint"]
    } else if below("/healthz") {
        vec!["healthz", "proxy"]
    } else if below("/pods") || below("/runningpods") {
        vec!["pods", "proxy"]
    } else if below("/configz") {
        vec!["configz", "proxy"]
    } else {
        vec!["proxy"]
    };
    Attributes { verb, subresources }
}

/// Decides by what this node knows alone.
///
/// Without an API server nobody can be asked for a review: in webhook mode only the group that
/// Kubernetes itself lets do everything is allowed.
pub(crate) fn decide(
    mode: Mode,
    anonymous: bool,
    caller: &Caller,
    node: &str,
    attributes: &Attributes,
) -> Verdict {
    let (name, groups): (&str, &[String]) = match caller {
        Caller::Anonymous if !anonymous => return Verdict::Unauthorized,
        Caller::Anonymous => ("system:anonymous", &[]),
        Caller::Known { name, groups } => (name, groups),
    };
    if mode == Mode::AlwaysAllow || groups.iter().any(|group| group == "system:masters") {
        return Verdict::Allow;
    }
    let subresource = attributes.subresources.first().copied().unwrap_or("proxy");
    Verdict::Forbidden(format!(
        "Forbidden (user={name}, verb={}, resource=nodes, subresource={subresource}, name={node}): \
         no API server to ask for a review",
        attributes.verb
    ))
}
