//! Paths and methods at which nothing is served, and paths that lead to others: upstream's answers.

/// The subtrees that upstream's web framework serves. It knows the methods of each path; all others are plain
/// handlers, which serve every method.
const FRAMEWORK: [&str; 11] = [
    "/attach",
    "/checkpoint",
    "/containerLogs",
    "/debug/pprof",
    "/exec",
    "/logs",
    "/pods",
    "/portForward",
    "/run",
    "/runningpods",
    "/stats",
];

/// Paths that are served with a slash at their end alone.
const SUBTREES: [&str; 3] = ["/logs", "/runningpods", "/stats"];

/// Whether upstream's web framework answers for a path: HEAD is a method like any other then.
pub(crate) fn is_of_framework(path: &str) -> bool {
    FRAMEWORK.iter().any(|root| {
        path.strip_prefix(root)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// The body of a 404 response.
pub(crate) fn not_found(path: &str) -> &'static str {
    if is_of_framework(path) {
        "404: Page Not Found"
    } else {
        "404 page not found\n"
    }
}

/// The `Allow` header of a 405 response, of one that lists HEAD wherever there is GET.
pub(crate) fn allowed(header: &str) -> String {
    let methods = header.split(',').map(str::trim);
    let mut methods: Vec<&str> = methods.filter(|method| *method != "HEAD").collect();
    methods.sort_unstable();
    methods.join(", ")
}

/// Where a path leads that is not as it should be: with `.`, `..` or empty parts, or without the slash of a
/// subtree.
pub(crate) fn redirect(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut clean = format!("/{}", parts.join("/"));
    let is_subtree = SUBTREES.contains(&clean.as_str());
    if (path.ends_with('/') && clean != "/") || is_subtree {
        clean.push('/');
    }
    (clean != path).then_some(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unclean_paths_and_roots_of_subtrees_are_redirected() {
        for (path, to) in [
            ("/", None),
            ("/pods", None),
            ("/pods/", None),
            ("//pods", Some("/pods")),
            ("/logs", Some("/logs/")),
            ("/logs/", None),
            ("/logs/../pods", Some("/pods")),
            ("/logs/../../../etc/passwd", Some("/etc/passwd")),
            ("/logs/./a//b/", Some("/logs/a/b/")),
            ("/logs/%2e%2e/x", None),
            ("/stats", Some("/stats/")),
            ("/runningpods", Some("/runningpods/")),
            ("/..", Some("/")),
            ("", Some("/")),
        ] {
            assert_eq!(redirect(path).as_deref(), to, "{path}");
        }
    }

    #[test]
    fn answers_are_those_of_the_framework_below_its_roots() {
        for (path, is_framework) in [
            ("/exec/ns/pod", true),
            ("/pods", true),
            ("/podsy", false),
            ("/metrics/none", false),
            ("/debug/flags/v", false),
            ("/", false),
        ] {
            assert_eq!(is_of_framework(path), is_framework, "{path}");
            assert_eq!(not_found(path).starts_with("404: "), is_framework, "{path}");
        }
        assert_eq!(allowed("POST,GET,HEAD"), "GET, POST");
        assert_eq!(allowed("POST"), "POST");
    }
}
