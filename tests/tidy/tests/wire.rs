//! The wire: generated code is up to date, names follow the rules, the baseline is compatible.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use polylet_tidy::baseline::WireBaseline;
use polylet_tidy::{root, wire};

#[test]
fn generated_code_is_up_to_date() {
    let fresh = tempfile::tempdir().expect("a directory for generated code");
    wire::generate_into(&root(), fresh.path()).expect("the proto files compile");
    let committed = root().join("proto/src/gen");
    let names = |dir: &std::path::Path| -> BTreeSet<String> {
        fs::read_dir(dir)
            .expect("generated files")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into()
            })
            .collect()
    };
    assert_eq!(
        names(&committed),
        names(fresh.path()),
        "run `cargo generate`"
    );
    for name in names(fresh.path()) {
        let read = |dir: &std::path::Path| fs::read_to_string(dir.join(&name)).expect("a file");
        assert!(
            read(&committed) == read(fresh.path()),
            "proto/src/gen/{name} is stale: run `cargo generate`"
        );
    }
}

#[test]
fn baseline_is_compatible() {
    let baseline = WireBaseline::committed(&root()).expect("the baseline");
    let now: BTreeSet<String> = wire::surface(&root())
        .expect("the wire")
        .into_iter()
        .collect();
    let known = baseline.lines();
    let gone: Vec<&&str> = known.iter().filter(|line| !now.contains(**line)).collect();
    assert!(gone.is_empty(), "removed or changed on the wire: {gone:#?}");
    let added: Vec<&String> = now
        .iter()
        .filter(|line| !known.contains(line.as_str()))
        .collect();
    assert!(
        added.is_empty(),
        "new on the wire; accept with `cargo generate baseline`: {added:#?}"
    );
}

#[test]
fn names_follow_the_rules() {
    let mut wrong = Vec::new();
    let mut used: BTreeMap<String, String> = BTreeMap::new();
    for file in wire::descriptors(&root()).expect("the wire").file {
        let package = file.package().to_owned();
        if !package.starts_with("polylet.") {
            continue;
        }
        let directory = file.name().rsplit_once('/').map_or("", |(dir, _)| dir);
        if directory != package.replace('.', "/") {
            wrong.push(format!(
                "{}: package {package} does not match its directory",
                file.name()
            ));
        }
        if !package.ends_with(".v1") {
            wrong.push(format!("{package}: no version suffix"));
        }
        for service in &file.service {
            if !service.name().ends_with("Service") {
                wrong.push(format!(
                    "{package}.{}: does not end in Service",
                    service.name()
                ));
            }
            for method in &service.method {
                let expected = [
                    ("Request", method.input_type()),
                    ("Response", method.output_type()),
                ];
                for (suffix, actual) in expected {
                    let want = format!(".{package}.{}{suffix}", method.name());
                    if actual != want {
                        wrong.push(format!("{}: {actual} should be {want}", method.name()));
                    }
                    if let Some(other) = used.insert(actual.to_owned(), method.name().to_owned()) {
                        wrong.push(format!("{actual}: used by {other} and {}", method.name()));
                    }
                }
            }
        }
        for one in &file.enum_type {
            let zero = one.value.first().map_or("", |value| value.name());
            if !zero.ends_with("_UNSPECIFIED") {
                wrong.push(format!("{package}.{}: zero is {zero}", one.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
