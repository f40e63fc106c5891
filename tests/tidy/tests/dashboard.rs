//! The dashboard in `compose/`: each query parses, and asks only for metrics and labels that the services have.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use polylet_tidy::{files, root};
use promql_parser::label::METRIC_NAME;
use promql_parser::parser::{Expr, VectorSelector, parse};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::Visit;
use syn::{ExprCall, Lit, Token};

/// Labels that Prometheus adds.
const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];

fn dashboard() -> Value {
    let text = fs::read_to_string(root().join("compose/dashboard.json")).expect("the dashboard");
    serde_json::from_str(&text).expect("JSON")
}

/// The queries by the titles of their panels, with Grafana's variables replaced as it does.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut queries = Vec::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        for target in panel["targets"].as_array().expect("targets") {
            let query = target["expr"].as_str().expect("a query");
            let query = query.replace("$instance", ".+");
            let query = query.replace("$__rate_interval", "1m");
            queries.push((title.to_owned(), query));
        }
    }
    queries
}

/// Families in the code: names with the names of their labels.
#[derive(Default)]
struct FamilyFinder {
    families: BTreeMap<String, BTreeSet<String>>,
    /// Texts of the constants in the present file, by which labels may be named.
    constants: BTreeMap<String, Vec<String>>,
}

impl FamilyFinder {
    fn add_constants(&mut self, file: &syn::File) {
        self.constants.clear();
        for item in &file.items {
            if let syn::Item::Const(constant) = item {
                let texts = self.strings(&constant.expr);
                self.constants.insert(constant.ident.to_string(), texts);
            }
        }
    }

    fn strings(&self, expression: &syn::Expr) -> Vec<String> {
        match expression {
            syn::Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => vec![text.value()],
                _ => Vec::new(),
            },
            syn::Expr::Reference(reference) => self.strings(&reference.expr),
            syn::Expr::Array(array) => array
                .elems
                .iter()
                .flat_map(|element| self.strings(element))
                .collect(),
            syn::Expr::Path(path) => {
                let name = path.path.get_ident().map(ToString::to_string);
                let texts = name.and_then(|name| self.constants.get(&name));
                texts.cloned().unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    fn add(&mut self, name: String, kind: &str, labels: BTreeSet<String>) {
        if kind == "histogram" {
            for suffix in ["_sum", "_count"] {
                self.families
                    .insert(format!("{name}{suffix}"), labels.clone());
            }
            let mut labels = labels;
            labels.insert("le".to_owned());
            self.families.insert(format!("{name}_bucket"), labels);
        } else {
            self.families.insert(name, labels);
        }
    }
}

impl<'ast> Visit<'ast> for FamilyFinder {
    /// `Metric::histogram(name, help, labels, bounds)` and the like.
    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if let syn::Expr::Path(path) = &*call.func {
            let segments: Vec<_> = path.path.segments.iter().collect();
            if let [.., of, kind] = segments.as_slice()
                && of.ident == "Metric"
            {
                let mut arguments = call.args.iter().map(|argument| self.strings(argument));
                let name = arguments.next().unwrap_or_default().into_iter().next();
                let labels = arguments.nth(1).unwrap_or_default().into_iter().collect();
                if let Some(name) = name {
                    self.add(name, &kind.ident.to_string(), labels);
                }
            }
        }
        syn::visit::visit_expr_call(self, call);
    }

    /// `.family(name, help, kind)` and tables of names: without labels, as these are written elsewhere.
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if call.method == "family" {
            let name = call
                .args
                .first()
                .map(|name| self.strings(name))
                .unwrap_or_default();
            for name in name {
                self.families.entry(name).or_default();
            }
        }
        syn::visit::visit_expr_method_call(self, call);
    }

    /// Families of the process are a table.
    fn visit_expr_tuple(&mut self, tuple: &'ast syn::ExprTuple) {
        if let Some(name) = tuple
            .elems
            .first()
            .and_then(|name| self.strings(name).pop())
            && name.starts_with("process_")
        {
            self.families.entry(name).or_default();
        }
        syn::visit::visit_expr_tuple(self, tuple);
    }

    /// Some are made in macros.
    fn visit_macro(&mut self, found: &'ast syn::Macro) {
        let parser = Punctuated::<syn::Expr, Token![,]>::parse_terminated;
        if let Ok(arguments) = parser.parse2(found.tokens.clone()) {
            for argument in &arguments {
                self.visit_expr(argument);
            }
        }
    }
}

fn families() -> BTreeMap<String, BTreeSet<String>> {
    let mut finder = FamilyFinder::default();
    for path in files(&root().join("services"), "rs") {
        let text = fs::read_to_string(&path).expect("a source file");
        if text.contains("Metric::") || text.contains(".family(") || text.contains("\"process_") {
            let file = syn::parse_file(&text).expect("Rust");
            finder.add_constants(&file);
            finder.visit_file(&file);
        }
    }
    finder.families
}

/// What a query asks for: families with the labels by which it selects.
#[derive(Default)]
struct SelectorFinder {
    selectors: Vec<(String, BTreeSet<String>)>,
    grouped: BTreeSet<String>,
}

impl SelectorFinder {
    fn add(&mut self, selector: &VectorSelector) {
        let matchers = selector.matchers.matchers.iter();
        let labels = matchers.map(|matcher| matcher.name.clone());
        let labels = labels.filter(|name| name != METRIC_NAME).collect();
        let name = selector.name.clone().expect("the name of a metric");
        self.selectors.push((name, labels));
    }
}

impl ExprVisitor for SelectorFinder {
    type Error = ();

    fn pre_visit(&mut self, expression: &Expr) -> Result<bool, ()> {
        match expression {
            Expr::VectorSelector(selector) => self.add(selector),
            Expr::MatrixSelector(selector) => self.add(&selector.vs),
            Expr::Aggregate(aggregate) => {
                if let Some(modifier) = &aggregate.modifier {
                    self.grouped
                        .extend(modifier.labels().labels.iter().cloned());
                }
            }
            _ => {}
        }
        Ok(true)
    }
}

#[test]
fn queries_parse_and_ask_for_what_the_services_count() {
    let families = families();
    assert!(families.contains_key("polylet_pod_start_step_seconds_bucket"));
    let dashboard = dashboard();
    let queries = queries(&dashboard);
    assert!(queries.len() > 10, "{queries:?}");
    for (panel, query) in &queries {
        let parsed = parse(query).unwrap_or_else(|error| panic!("{panel}: {error}: {query}"));
        let mut found = SelectorFinder::default();
        walk_expr(&mut found, &parsed).expect("no visit fails");
        assert!(!found.selectors.is_empty(), "{panel}: {query}");
        let mut known: BTreeSet<&str> = OF_PROMETHEUS.into();
        for (name, labels) in &found.selectors {
            let family = families.get(name);
            let family = family.unwrap_or_else(|| panic!("{panel}: nothing counts {name}"));
            known.extend(family.iter().map(String::as_str));
            for label in labels {
                assert!(
                    known.contains(label.as_str()),
                    "{panel}: {name} has no label {label}"
                );
            }
        }
        for label in &found.grouped {
            assert!(
                known.contains(label.as_str()),
                "{panel}: no label {label} in {query}"
            );
        }
    }
}

/// Panels that lead to traces ask for exemplars of histograms whose values have them.
#[test]
fn exemplars_are_asked_for() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let with_exemplars: Vec<_> = targets
        .filter(|target| target["exemplar"] == true)
        .collect();
    assert!(!with_exemplars.is_empty());
    for target in with_exemplars {
        let query = target["expr"].as_str().expect("a query");
        assert!(
            query.contains("polylet_pod_start_step_seconds_bucket"),
            "{query}"
        );
    }
    let compose = fs::read_to_string(root().join("compose/compose.yaml")).expect("compose.yaml");
    assert!(compose.contains("--enable-feature=exemplar-storage"));
}

#[test]
fn panels_are_apart_and_have_ids_of_their_own() {
    let dashboard = dashboard();
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a position");
        for x in at("x")..at("x") + at("w") {
            assert!(x < 24, "{panel}");
            for y in at("y")..at("y") + at("h") {
                assert!(cells.insert((x, y)), "{panel}");
            }
        }
    }
}
