//! Ids, each with a type of its own, so that they cannot be mixed up.

use std::borrow::Borrow;
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
            /// The id as owned text.
            pub fn into_string(self) -> String {
                self.0
            }
            /// Whether the id is empty.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

id!(
    /// A pod's uid: the key of a pod everywhere.
    PodUid
);
id!(
    /// The runtime's id of a container, without a prefix such as `containerd://`.
    ContainerId
);
id!(
    /// The runtime's id of a pod sandbox.
    SandboxId
);
