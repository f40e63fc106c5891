//! The layout of the Go structures of a pod, from `types.txt`.

use std::collections::BTreeMap;

/// Named Go types. Read for each hash and dropped: it is needed rarely.
pub(super) struct GoLayout {
    named: BTreeMap<&'static str, GoType>,
}

/// What a Go type consists of.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GoType {
    Text,
    Bool,
    Int32,
    Int64,
    Pointer(&'static str),
    Slice(&'static str),
    /// A map from strings to values of a type.
    Map(&'static str),
    Struct(Vec<GoField>),
    /// `resource.Quantity`.
    Quantity,
    /// `v1.Time`.
    Time,
    /// `intstr.IntOrString`.
    IntOrString,
    /// `v1.FieldsV1`: the JSON text as bytes.
    RawJson,
}

/// A field of a Go structure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GoField {
    pub(super) name: &'static str,
    /// The type's name.
    pub(super) go_type: &'static str,
    /// Key in the JSON object; `None` for a structure whose fields are in the same object.
    pub(super) key: Option<&'static str>,
}

impl GoLayout {
    /// Reads the layout that this build contains.
    pub(super) fn read() -> GoLayout {
        let mut layout = GoLayout {
            named: BTreeMap::new(),
        };
        let mut open: Option<&'static str> = None;
        for line in include_str!("types.txt").lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(first), Some(second), third) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            if line.starts_with('\t') {
                let fields = open.and_then(|name| layout.named.get_mut(name));
                if let (Some(GoType::Struct(fields)), Some(key)) = (fields, third) {
                    fields.push(GoField {
                        name: first,
                        go_type: second,
                        key: (key != ".").then_some(key),
                    });
                }
                continue;
            }
            open = Some(second);
            let kind = match first {
                "struct" => GoType::Struct(Vec::new()),
                "map" => GoType::Map(words.next().unwrap_or_default()),
                basic => match builtin(basic) {
                    Some(kind) => kind,
                    None => continue,
                },
            };
            layout.named.insert(second, kind);
        }
        layout
    }

    /// A type by its name.
    pub(super) fn get(&self, name: &'static str) -> Option<GoType> {
        if let Some(target) = name.strip_prefix('*') {
            return Some(GoType::Pointer(target));
        }
        if let Some(item) = name.strip_prefix("[]") {
            return Some(GoType::Slice(item));
        }
        if let Some(map) = name.strip_prefix("map[") {
            return Some(GoType::Map(map.split_once(']')?.1));
        }
        builtin(name).or_else(|| self.named.get(name).cloned())
    }

    /// The fields of a structure.
    pub(super) fn fields(&self, name: &str) -> &[GoField] {
        match self.named.get(name) {
            Some(GoType::Struct(fields)) => fields,
            _ => &[],
        }
    }
}

fn builtin(name: &str) -> Option<GoType> {
    Some(match name {
        "string" => GoType::Text,
        "bool" => GoType::Bool,
        "int32" => GoType::Int32,
        "int" | "int64" => GoType::Int64,
        "resource.Quantity" => GoType::Quantity,
        "v1.Time" => GoType::Time,
        "intstr.IntOrString" => GoType::IntOrString,
        "v1.FieldsV1" => GoType::RawJson,
        _ => return None,
    })
}
