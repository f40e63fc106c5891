//! `dump.ForHash`: the print of a Go structure by `go-spew` (`%#v`, with sorted keys, without methods).

use serde_json::Value;

use super::error::DumpError;
use super::layout::{GoField, GoLayout, GoType};
use super::quantity::GoQuantity;
use crate::core::canonical;

/// A dump that is being written.
pub(super) struct Dump<'a> {
    layout: &'a GoLayout,
    write: &'a mut dyn FnMut(&str),
}

impl<'a> Dump<'a> {
    pub(super) fn new(layout: &'a GoLayout, write: &'a mut dyn FnMut(&str)) -> Self {
        Self { layout, write }
    }

    /// Writes a pod of the internal version.
    pub(super) fn pod(&mut self, pod: &Value) -> Result<(), DumpError> {
        self.value("*core.Pod", pod, true)
    }

    /// Writes a value, and before it its type if `typed`: fields have it, items of lists and maps do not.
    fn value(
        &mut self,
        go_type: &'static str,
        value: &Value,
        typed: bool,
    ) -> Result<(), DumpError> {
        let invalid = || DumpError::Value {
            go_type: go_type.to_owned(),
        };
        let kind = self
            .layout
            .get(go_type)
            .ok_or_else(|| DumpError::GoLayout {
                go_type: go_type.to_owned(),
            })?;
        if typed {
            self.parts(&["(", go_type, ")"]);
        }
        match (kind, value) {
            (GoType::Pointer(_) | GoType::Slice(_) | GoType::Map(_), Value::Null) => {
                self.parts(&["<nil>"]);
            }
            (GoType::Pointer(target), value) => {
                if !typed {
                    self.parts(&["<*>"]);
                }
                self.value(target, value, false)?;
            }
            (GoType::Slice(item), Value::Array(items)) => self.list(item, items)?,
            (GoType::Map(item), Value::Object(entries)) => {
                let mut entries: Vec<(&str, &Value)> = entries
                    .iter()
                    .map(|(key, value)| (key.as_str(), value))
                    .collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                self.map(item, &entries)?;
            }
            (GoType::Struct(fields), Value::Object(_) | Value::Null) => {
                self.fields(&fields, value)?;
            }
            (GoType::Text, Value::String(text)) => self.parts(&[text]),
            (GoType::Text, Value::Null) => {}
            (GoType::Bool, Value::Bool(true)) => self.parts(&["true"]),
            (GoType::Bool, Value::Bool(false) | Value::Null) => self.parts(&["false"]),
            (GoType::Int32, value) => {
                let number = integer(value).and_then(|number| i32::try_from(number).ok());
                self.parts(&[&number.ok_or_else(invalid)?.to_string()]);
            }
            (GoType::Int64, value) => {
                self.parts(&[&integer(value).ok_or_else(invalid)?.to_string()]);
            }
            (GoType::Quantity, value) => {
                let quantity = GoQuantity::from_json(value).ok_or_else(invalid)?;
                self.parts(&[&quantity.dump()]);
            }
            (GoType::IntOrString, value) => self.int_or_string(value).ok_or_else(invalid)?,
            (GoType::Time, Value::Null) => self.parts(&[
                "{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}",
            ]),
            (GoType::Time, Value::String(_)) => return Err(DumpError::Time),
            (GoType::RawJson, value) => self.raw_json(value),
            _ => return Err(invalid()),
        }
        Ok(())
    }

    fn list(&mut self, item: &'static str, items: &[Value]) -> Result<(), DumpError> {
        self.parts(&["["]);
        for (i, value) in items.iter().enumerate() {
            self.separate(i);
            self.value(item, value, false)?;
        }
        self.parts(&["]"]);
        Ok(())
    }

    fn map(&mut self, item: &'static str, entries: &[(&str, &Value)]) -> Result<(), DumpError> {
        self.parts(&["map["]);
        for (i, (key, value)) in entries.iter().enumerate() {
            self.separate(i);
            self.parts(&[key, ":"]);
            self.value(item, value, false)?;
        }
        self.parts(&["]"]);
        Ok(())
    }

    fn fields(&mut self, fields: &[GoField], object: &Value) -> Result<(), DumpError> {
        self.parts(&["{"]);
        for (i, field) in fields.iter().enumerate() {
            self.separate(i);
            self.parts(&[field.name, ":"]);
            let value = match field.key {
                Some(key) => object.get(key).unwrap_or(&Value::Null),
                None => object,
            };
            self.value(field.go_type, value, true)?;
        }
        self.parts(&["}"]);
        Ok(())
    }

    /// `None` for another type than a number or a string.
    fn int_or_string(&mut self, value: &Value) -> Option<()> {
        let (kind, number, text) = match value {
            Value::String(text) => ("1", "0".to_owned(), text.as_str()),
            other => ("0", i32::try_from(integer(other)?).ok()?.to_string(), ""),
        };
        self.parts(&["{Type:(intstr.Type)", kind, " IntVal:(int32)", &number]);
        self.parts(&[" StrVal:(string)", text, "}"]);
        Some(())
    }

    /// The bytes of a JSON text, in decimal.
    fn raw_json(&mut self, value: &Value) {
        self.parts(&["{Raw:([]uint8)"]);
        match value {
            Value::Null => self.parts(&["<nil>"]),
            value => {
                self.parts(&["["]);
                for (i, byte) in canonical::to_bytes(value).iter().enumerate() {
                    self.separate(i);
                    self.parts(&[&byte.to_string()]);
                }
                self.parts(&["]"]);
            }
        }
        self.parts(&["}"]);
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            (self.write)(" ");
        }
    }

    fn parts(&mut self, parts: &[&str]) {
        for part in parts {
            (self.write)(part);
        }
    }
}

/// An integer; YAML's floats without a fraction are written as integers, and null is zero.
fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Null => Some(0),
        Value::Number(number) => number.as_i64().or_else(|| {
            let float = number.as_f64()?;
            // Beyond this, floats are written with an exponent or are not exact.
            let exact = float.fract() == 0.0 && float.abs() < 9e15;
            exact.then_some(float as i64)
        }),
        _ => None,
    }
}
