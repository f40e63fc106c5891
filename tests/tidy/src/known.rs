//! Generates `proto/src/gen/known.rs`: for each of our messages, whether this build knows every enum
//! value and every variant of a oneof in it.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

/// What does not compile to code that this generator knows.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {kind} are not supported in our packages")]
struct Unsupported {
    name: String,
    kind: &'static str,
}

/// Our messages by full name, such as `.polylet.pleg.v1.Pod`, with whether they are states of a stream.
struct WireMessages<'a> {
    all: BTreeMap<String, &'a DescriptorProto>,
    streamed: Vec<&'a str>,
}

/// The Rust code.
///
/// # Errors
/// If a message has a part for which no code can be generated.
pub fn code(wire: &FileDescriptorSet) -> Result<String, Box<dyn Error>> {
    let own = || {
        let files = wire.file.iter();
        files.filter(|file| file.package().starts_with("polylet."))
    };
    let named = own().flat_map(|file| {
        let package = file.package();
        let messages = file.message_type.iter();
        messages.map(move |message| (format!(".{package}.{}", message.name()), message))
    });
    let services = own().flat_map(|file| &file.service);
    let methods = services.flat_map(|service| &service.method);
    let messages = WireMessages {
        all: named.collect(),
        streamed: methods
            .filter(|method| method.server_streaming())
            .map(|method| method.output_type())
            .collect(),
    };
    let mut code = "// This file is @generated from the .proto files.\n".to_owned();
    for (name, message) in &messages.all {
        messages.describe(name, message, &mut code)?;
    }
    Ok(code)
}

impl WireMessages<'_> {
    fn describe(
        &self,
        name: &str,
        message: &DescriptorProto,
        code: &mut String,
    ) -> Result<(), Box<dyn Error>> {
        let is_entry = |one: &DescriptorProto| one.options.as_ref().is_some_and(|o| o.map_entry());
        let unsupported = |kind| Unsupported {
            name: name.to_owned(),
            kind,
        };
        if message.nested_type.iter().any(|one| !is_entry(one)) || !message.enum_type.is_empty() {
            return Err(unsupported("nested types").into());
        }
        let mut checks = String::new();
        for (index, oneof) in message.oneof_decl.iter().enumerate() {
            let variants = fields(message, Some(index));
            if variants.iter().any(|field| field.proto3_optional()) {
                continue;
            }
            let place = place(name, oneof.name());
            let module = rust_path(name, snake(message.name()));
            let path = format!("{module}::{}", camel(oneof.name()));
            let _ = writeln!(
                checks,
                "            .or_else(|| match &self.{} {{",
                ident(oneof.name())
            );
            let _ = writeln!(checks, "                None => Some({place:?}),");
            for field in variants {
                if let Some(check) = self.check(name, field, "[value]") {
                    let variant = camel(field.name());
                    let _ = writeln!(
                        checks,
                        "                Some({path}::{variant}(value)) => {check},"
                    );
                }
            }
            let _ = writeln!(checks, "                Some(_) => None,\n            }})");
        }
        for field in fields(message, None) {
            let entry = message
                .nested_type
                .iter()
                .find(|one| field.type_name() == format!("{name}.{}", one.name()));
            if let Some(entry) = entry {
                let value = entry.field.iter().find(|field| field.number() == 2);
                if value.is_some_and(|value| self.check(name, value, "").is_some()) {
                    return Err(unsupported("maps of messages or enums").into());
                }
                continue;
            }
            let ident = ident(field.name());
            let is_single = field.label() != Label::Repeated && !field.proto3_optional();
            let values = match field.r#type() {
                Type::Enum if is_single => format!("[&self.{ident}]"),
                _ => format!("&self.{ident}"),
            };
            if let Some(check) = self.check(name, field, &values) {
                let _ = writeln!(checks, "            .or_else(|| {check})");
            }
        }
        let streamed = match self.streamed.contains(&name) {
            true => "    const STREAMED: bool = true;\n",
            false => "",
        };
        let rust = rust_path(name, message.name().to_owned());
        let _ = write!(
            code,
            "impl Known for {rust} {{\n{streamed}    fn unknown(&self) -> Option<&'static str> {{\n        \
             None\n{checks}    }}\n}}\n"
        );
        Ok(())
    }

    /// The check of the values of a field; `None` if each of them is known.
    fn check(&self, message: &str, field: &FieldDescriptorProto, values: &str) -> Option<String> {
        match field.r#type() {
            Type::Enum => {
                let (scope, name) = field.type_name().rsplit_once('.')?;
                let path = rust_path(&format!("{scope}.{name}"), name.to_owned());
                let place = place(message, field.name());
                Some(format!("enums::<{path}>({values}, {place:?})"))
            }
            Type::Message if self.has_checks(field.type_name()) => {
                Some(format!("messages({values})"))
            }
            _ => None,
        }
    }

    /// Whether a message contains an enum or a oneof, at any depth.
    fn has_checks(&self, name: &str) -> bool {
        let Some(message) = self.all.get(name) else {
            return false;
        };
        let is_checked = |field: &FieldDescriptorProto| match field.r#type() {
            Type::Enum => true,
            Type::Message => self.has_checks(field.type_name()),
            _ => false,
        };
        let has_oneof =
            |field: &FieldDescriptorProto| field.oneof_index.is_some() && !field.proto3_optional();
        let mut fields = message.field.iter();
        fields.any(|field| has_oneof(field) || is_checked(field))
    }
}

/// The fields in a oneof, or those in none. That of an `optional` field is not one.
fn fields(message: &DescriptorProto, oneof: Option<usize>) -> Vec<&FieldDescriptorProto> {
    let of = |field: &FieldDescriptorProto| {
        let index = field
            .oneof_index
            .and_then(|index| usize::try_from(index).ok());
        match oneof {
            Some(_) => index == oneof,
            None => index.is_none() || field.proto3_optional(),
        }
    };
    message.field.iter().filter(|field| of(field)).collect()
}

/// `polylet.pleg.v1.Container.phase`.
fn place(message: &str, field: &str) -> String {
    format!("{}.{field}", message.trim_start_matches('.'))
}

/// `crate::pleg::v1::Container` of `.polylet.pleg.v1.Container`, with another last name.
fn rust_path(full: &str, last: String) -> String {
    let package = full.trim_start_matches(".polylet.").split('.');
    let package: Vec<&str> = package.take(2).collect();
    format!("crate::{}::{last}", package.join("::"))
}

fn ident(name: &str) -> String {
    match syn::parse_str::<syn::Ident>(name) {
        Ok(_) => name.to_owned(),
        Err(_) => format!("r#{name}"),
    }
}

/// `pod_uid` as `PodUid`.
fn camel(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    name.split('_').map(word).collect()
}

/// `PodUid` as `pod_uid`.
fn snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}
