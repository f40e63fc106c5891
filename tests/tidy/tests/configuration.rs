//! The configuration: every field of the kubelet's is used somewhere, or users are told that it is not.

use std::fs;

use polylet_kit::config::{INEFFECTIVE_FIELDS, KubeletConfiguration, UNSUPPORTED_FIELDS};
use polylet_tidy::{files, root};
use serde_json::Value;

/// Fields that name cgroups whose usage is measured, though no process is moved there, and one that upstream's messages of
/// the node API mention.
const PARTLY_USED: [&str; 3] = ["kubeletCgroups", "logging.verbosity", "systemCgroups"];

/// Fields that are used where the configuration is read, with the words that show it.
const USED_WHEN_READ: &[(&str, &str)] = &[
    ("featureGates", "gates::check(&kubelet"),
    (
        "mergeDefaultEvictionSettings",
        "if self.merge_default_eviction_settings",
    ),
    ("reservedSystemCPUs", "cpus(&self.reserved_system_cpus)"),
    ("qosReserved", "self.qos_reserved.get"),
    ("serializeImagePulls", "match self.serialize_image_pulls"),
    ("maxParallelImagePulls", ".max_parallel_image_pulls"),
    ("imageServiceEndpoint", "&self.image_service_endpoint"),
];

/// Paths of the fields of upstream's type.
fn upstream_fields() -> Vec<String> {
    let path = root().join("tests/tidy/fixtures/kubelet_configuration.txt");
    let text = fs::read_to_string(path).expect("the fixture");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let fields = lines.filter_map(|line| line.split_once(' '));
    fields.map(|(path, _)| path.to_owned()).collect()
}

/// The code of all crates, those of the configuration apart.
fn code() -> (String, String) {
    let (mut reading, mut using) = (String::new(), String::new());
    let config = root().join("services/shared/kit/src/config");
    for file in files(&root().join("services"), "rs") {
        let is_source = file.components().any(|part| part.as_os_str() == "src");
        if !is_source || file.ends_with("tests.rs") {
            continue;
        }
        let into = if file.starts_with(&config) {
            &mut reading
        } else {
            &mut using
        };
        let text = fs::read_to_string(&file).unwrap_or_default();
        let code = text.split("#[cfg(test)]\nmod tests {").next();
        for line in code.unwrap_or_default().lines() {
            let line = line.split("//").next().unwrap_or_default().trim();
            // Chains of fields are broken over lines.
            if !line.starts_with('.') {
                into.push('\n');
            }
            into.push_str(line);
        }
    }
    (reading, using)
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    let chars: Vec<char> = name.chars().collect();
    for (at, c) in chars.iter().enumerate() {
        let after_lower = at > 0 && !chars[at - 1].is_uppercase();
        let before_lower = chars.get(at + 1).is_some_and(|next| next.is_lowercase());
        if c.is_uppercase() && at > 0 && (after_lower || before_lower) {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
        .replace("kube_apiqps", "kube_api_qps")
        .replace("_cp_us", "_cpus")
}

/// How code reads a field: a nested one from its section, a common word from the configuration.
fn use_of(path: &str) -> String {
    let mut names = path.rsplit('.').map(snake_case);
    let field = names.next().unwrap_or_default();
    match names.next() {
        Some(section) => format!("{section}.{field}"),
        None if field.contains('_') => format!(".{field}"),
        None => format!("kubelet.{field}"),
    }
}

/// Whether code contains the words, not as the beginning of a longer name or of a text.
fn contains(code: &str, words: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(words).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + words.len()..]);
        !before.ends_with('"') && !after.starts_with(is_name)
    })
}

#[test]
fn every_field_of_the_kubelet_is_known() {
    let known = serde_json::to_value(KubeletConfiguration::default()).expect("the configuration");
    let mut missing = Vec::new();
    for path in upstream_fields() {
        let pointer = format!("/{}", path.replace('.', "/"));
        let parent_is_null = path
            .split_once('.')
            .is_some_and(|(parent, _)| known.pointer(&format!("/{parent}")) == Some(&Value::Null));
        if known.pointer(&pointer).is_none() && !parent_is_null {
            missing.push(path);
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_field_of_the_kubelet_is_used_or_named_as_unsupported() {
    let upstream = upstream_fields();
    let unused: Vec<&str> = UNSUPPORTED_FIELDS
        .iter()
        .chain(INEFFECTIVE_FIELDS)
        .map(|(field, _)| *field)
        .collect();
    let (reading, using) = code();
    let is_unused = |path: &str| {
        let parent = path.split_once('.').map(|(parent, _)| parent);
        unused.contains(&path) || parent.is_some_and(|parent| unused.contains(&parent))
    };
    let (mut neither, mut both) = (Vec::new(), Vec::new());
    for path in &upstream {
        let when_read = USED_WHEN_READ.iter().find(|(of, _)| of == path);
        let used = match when_read {
            Some((_, words)) => reading.contains(words),
            None => contains(&using, &use_of(path)),
        };
        match (used, is_unused(path)) {
            (false, false) => neither.push(path),
            (true, true) if !PARTLY_USED.contains(&path.as_str()) => both.push(path),
            _ => {}
        }
    }
    assert!(
        neither.is_empty(),
        "neither used nor unsupported: {neither:#?}"
    );
    assert!(both.is_empty(), "used, and yet unsupported: {both:#?}");
    let unknown = unused.iter().filter(|field| {
        let prefix = format!("{field}.");
        !upstream
            .iter()
            .any(|path| path == *field || path.starts_with(&prefix))
    });
    let unknown: Vec<_> = unknown.collect();
    assert!(unknown.is_empty(), "not upstream's: {unknown:?}");
}
