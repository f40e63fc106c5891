//! Errors in fields of manifests, after `field.Error` of apimachinery.

/// One problem in a manifest file or URL response.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Error {
    /// Position in the file: `document 2`, `item 3`; empty for the whole file.
    pub location: String,
    /// Path of the field, `spec.containers[0].name`; empty when no field is concerned.
    pub field: String,
    /// Description of the problem and of the expected value.
    pub message: String,
}

impl Error {
    /// A problem with a field, without a location: [`Error::at`] adds it.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Error {
            location: String::new(),
            field: field.into(),
            message: message.into(),
        }
    }

    /// The same problem with its location.
    pub fn at(mut self, location: &str) -> Self {
        self.location = location.to_owned();
        self
    }
}
