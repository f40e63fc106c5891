//! Attributes of spans have OpenTelemetry's names, or begin with `polylet.`.

use std::collections::{BTreeMap, BTreeSet};

use opentelemetry_semantic_conventions::{attribute as standard, resource};
use polylet_tidy::syntax::sources;
use syn::visit::Visit;

/// The standard names in use; one that is missing here is added with its constant.
const STANDARD: &[&str] = &[
    standard::CONTAINER_ID,
    standard::CONTAINER_IMAGE_NAME,
    standard::CONTAINER_RUNTIME_NAME,
    standard::CONTAINER_RUNTIME_VERSION,
    standard::ERROR_TYPE,
    standard::FILE_PATH,
    standard::FILE_SIZE,
    standard::HTTP_REQUEST_METHOD,
    standard::HTTP_RESPONSE_STATUS_CODE,
    standard::K8S_CONTAINER_NAME,
    standard::K8S_NAMESPACE_NAME,
    standard::K8S_NODE_NAME,
    standard::K8S_POD_NAME,
    standard::K8S_POD_STATUS_PHASE,
    standard::K8S_POD_UID,
    standard::K8S_VOLUME_NAME,
    standard::K8S_VOLUME_TYPE,
    standard::NETWORK_TRANSPORT,
    standard::RPC_METHOD,
    standard::RPC_RESPONSE_STATUS_CODE,
    standard::RPC_SYSTEM_NAME,
    standard::SERVER_ADDRESS,
    standard::SERVER_PORT,
    standard::URL_FULL,
];

/// Those of resources.
const RESOURCE: &[&str] = &[
    resource::HOST_NAME,
    resource::K8S_NODE_NAME,
    resource::PROCESS_PID,
    resource::SERVICE_INSTANCE_ID,
    resource::SERVICE_NAME,
    resource::SERVICE_NAMESPACE,
    resource::SERVICE_VERSION,
];

/// Fields that the layer between `tracing` and OpenTelemetry turns into properties of the span.
const PROPERTIES: &[&str] = &[
    "otel.kind",
    "otel.name",
    "otel.status_code",
    "otel.status_description",
];

#[test]
fn attributes_of_spans_are_standard_or_our_own() {
    let mut used = BTreeMap::<String, BTreeSet<String>>::new();
    for file in sources(&["services"]) {
        let mut names = AttributeNames::default();
        names.visit_file(&file.syntax);
        for name in names.0 {
            let path = file.path.display().to_string();
            used.entry(name).or_default().insert(path);
        }
    }
    assert!(used.len() > 15, "attributes are not found: {used:?}");
    let is_known = |name: &str| {
        name.starts_with("polylet.") || STANDARD.contains(&name) || PROPERTIES.contains(&name)
    };
    let wrong: Vec<_> = used.iter().filter(|(name, _)| !is_known(name)).collect();
    assert!(
        wrong.is_empty(),
        "neither standard nor polylet.*: {wrong:#?}"
    );
    let unused = STANDARD.iter().filter(|name| !used.contains_key(**name));
    assert_eq!(
        unused.collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "in use no more"
    );
}

#[test]
fn attributes_of_resources_are_standard() {
    let attributes = polylet_kit::telemetry::ProcessIdentity {
        service: "pleg",
        version: "1.2.3",
        incarnation: "i",
        node: "n1",
    }
    .attributes();
    let names: Vec<&str> = attributes.keys().map(String::as_str).collect();
    assert_eq!(names, RESOURCE);
}

/// Collects the names of attributes: fields of spans, those that are recorded later, and those of past spans.
#[derive(Default)]
struct AttributeNames(BTreeSet<String>);

impl<'ast> Visit<'ast> for AttributeNames {
    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let name = called.path.segments.last();
        let name = name.map(|segment| segment.ident.to_string());
        let text = called.tokens.to_string();
        if name.is_some_and(|name| name.ends_with("_span")) {
            self.add_fields(&text);
        }
        // Spans within other macros.
        for (at, found) in text.match_indices("span ! (") {
            self.add_fields(arguments(&text[at + found.len()..]));
        }
        syn::visit::visit_macro(self, called);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let is_record = call.method == "record" && call.args.len() == 2;
        if let Some(syn::Expr::Lit(literal)) = call.args.first().filter(|_| is_record)
            && let syn::Lit::Str(name) = &literal.lit
        {
            self.0.insert(name.value());
        }
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_struct(&mut self, made: &'ast syn::ExprStruct) {
        if made
            .path
            .segments
            .last()
            .is_some_and(|last| last.ident == "PastSpan")
        {
            for field in &made.fields {
                if let syn::Expr::Macro(list) = &field.expr {
                    let text = list.mac.tokens.to_string();
                    let names = text.split("(\"").skip(1);
                    self.0
                        .extend(names.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
                }
            }
        }
        syn::visit::visit_expr_struct(self, made);
    }
}

impl AttributeNames {
    /// The names of the fields in the arguments of a span's macro, of which spaces separate the tokens.
    fn add_fields(&mut self, text: &str) {
        for argument in split_arguments(text) {
            let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
            let name = name.replace(' ', "");
            // A variable's value under its name; not a template's parameter, the span's name, or its parent.
            let is_field =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._".contains(c);
            let is_path = name.chars().all(is_field) && !name.is_empty();
            if is_path && !value.starts_with('>') {
                self.0.insert(name);
            }
        }
    }
}

/// The text up to the parenthesis that closes it.
fn arguments(text: &str) -> &str {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// The arguments between commas that are in no parentheses; the fields after a template's parameters are their own.
fn split_arguments(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut found) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth -= 1;
                if text[..at].ends_with("$ field) *") || text[from..at].contains("$ ($ field)") {
                    from = at + 1;
                }
            }
            ',' if depth == 0 => {
                found.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push(text[from..].trim());
    found
}

#[test]
fn names_are_found_in_calls_and_templates() {
    let mut names = AttributeNames::default();
    names.add_fields(r#"parent : None , "sync.x" , k8s . pod . uid = context (a , b) , phase , error . type = Empty , ? x"#);
    let found: Vec<_> = names.0.iter().map(String::as_str).collect();
    assert_eq!(found, ["error.type", "k8s.pod.uid", "phase"]);
}
