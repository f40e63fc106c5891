//! Files and flags as one configuration.

use std::path::Path;

use polylet_kit::config;
use serde_json::{Map, Value};

use super::files::{Documents, merge};
use super::parse::Setting;
use super::table::{Kind, Means};
use super::{Effective, FlagError};

/// The configuration of documents and settings over them.
pub(super) fn of(
    mut documents: Documents,
    settings: Vec<Setting>,
    notes: Vec<String>,
) -> Result<Effective, FlagError> {
    for Setting { flag, value } in settings {
        match flag.means {
            Means::Polylet(field) => set(&mut documents.polylet, field, value, flag.kind),
            Means::Kubelet(field) | Means::Deprecated(field) => {
                set(&mut documents.kubelet, field, value, flag.kind);
            }
            Means::Config | Means::ConfigDirectory | Means::Nothing(_) => {}
        }
    }
    let Documents { kubelet, polylet } = documents;
    let kubelet = headed(
        kubelet,
        "kubelet.config.k8s.io/v1beta1",
        "KubeletConfiguration",
    );
    let polylet = headed(polylet, "polylet.dev/v1alpha1", "PolyletConfiguration");
    let texts = [kubelet, polylet].map(|document| serde_yaml_ng::to_string(&document));
    let [kubelet, polylet] = texts;
    let text = format!(
        "# Made by polylet run of the files and flags that it was started with.\n{}---\n{}",
        kubelet.map_err(FlagError::Encode)?,
        polylet.map_err(FlagError::Encode)?
    );
    // Files were right by themselves: what is wrong now came by the flags.
    let mut config = config::from_text(Path::new("flags"), &text)?;
    config.path = config.polylet.run_directory.join("supervisor/config.yaml");
    config.warnings.extend(notes);
    Ok(Effective {
        config,
        text: Some(text),
    })
}

fn headed(fields: Map<String, Value>, version: &str, kind: &str) -> Value {
    let mut all = Map::from_iter([
        ("apiVersion".to_owned(), version.into()),
        ("kind".to_owned(), kind.into()),
    ]);
    merge(&mut all, fields.into());
    all.into()
}

/// Sets a field by its path, `authentication.x509.clientCAFile`; without a path the value's fields.
fn set(document: &mut Map<String, Value>, path: &str, value: Value, kind: Kind) {
    let Some((last, parents)) = path
        .rsplit_once('.')
        .map(|(p, l)| (l, p))
        .or(Some((path, "")))
    else {
        return;
    };
    let mut at = document;
    for name in parents.split('.').filter(|name| !name.is_empty()) {
        let next = at.entry(name).or_insert_with(|| Map::new().into());
        if !next.is_object() {
            *next = Map::new().into();
        }
        let Value::Object(fields) = next else {
            return;
        };
        at = fields;
    }
    match (kind, value) {
        (Kind::NodeIps, value) => merge(at, value),
        // Gates of the file stand where the flag does not name them.
        (Kind::Bools, value) => merge(at, Map::from_iter([(last.to_owned(), value)]).into()),
        (_, value) => {
            at.insert(last.to_owned(), value);
        }
    }
}
