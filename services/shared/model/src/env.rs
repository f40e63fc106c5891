//! Environment variables of containers, and `$(VAR)` expansion.

use std::collections::BTreeMap;

/// Replaces `$(NAME)` by the value that `lookup` returns for NAME. `$$` is an escaped `$`: `$$(NAME)`
/// becomes `$(NAME)`. References to unknown names, and any other text, are left unchanged.
pub fn expand<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        if let Some(after) = tail.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = tail.strip_prefix('(').and_then(|t| t.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
            rest = tail;
        }
    }
    out.push_str(rest);
    out
}

/// Variables in the order in which they were first set. Setting one again replaces its value in
/// place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    variables: Vec<(String, String)>,
    /// Variables that the pod has not set itself: those of Services. They can be referred to.
    fallback: BTreeMap<String, String>,
}

impl Environment {
    /// An empty environment.
    pub fn new() -> Self {
        Self::default()
    }

    /// An environment with the variables of Services as a fallback.
    pub fn with_fallback(fallback: BTreeMap<String, String>) -> Self {
        Environment {
            variables: Vec::new(),
            fallback,
        }
    }

    /// Adds the fallback variables that have not been set.
    pub fn add_fallback(&mut self) {
        for (name, value) in std::mem::take(&mut self.fallback) {
            if self.get(&name).is_none() {
                self.variables.push((name, value));
            }
        }
    }

    /// Sets a variable.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        match self.variables.iter_mut().find(|(known, _)| *known == name) {
            Some((_, current)) => *current = value,
            None => self.variables.push((name, value)),
        }
    }

    /// A variable's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Expands references to variables set so far, and to fallback variables.
    pub fn expand(&self, text: &str) -> String {
        expand(text, |name| {
            self.get(name)
                .or_else(|| self.fallback.get(name).map(String::as_str))
        })
    }

    /// The variables that are set, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The variables that are set, in order.
    pub fn into_vec(self) -> Vec<(String, String)> {
        self.variables
    }
}

/// Whether a name is valid: printable ASCII without `=`, as the API has accepted since 1.32 (relaxed
/// validation).
pub fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'=')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The table of upstream's test in `third_party/forked/golang/expansion`.
    #[test]
    fn expansion_as_upstream() {
        let vars = [
            ("VAR_A", "A"),
            ("VAR_B", "B"),
            ("VAR_C", "C"),
            ("VAR_REF", "$(VAR_A)"),
            ("VAR_EMPTY", ""),
        ];
        let lookup = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        for (input, expected) in [
            ("$(VAR_A)", "A"),
            ("___$(VAR_B)___", "___B___"),
            ("___$(VAR_C)", "___C"),
            ("$(VAR_A)-$(VAR_A)", "A-A"),
            ("$(VAR_A)-1", "A-1"),
            ("$(VAR_A)_$(VAR_B)_$(VAR_C)", "A_B_C"),
            ("$$(VAR_B)_$(VAR_A)", "$(VAR_B)_A"),
            ("$$(VAR_A)_$$(VAR_B)", "$(VAR_A)_$(VAR_B)"),
            ("f000-$$VAR_A", "f000-$VAR_A"),
            ("foo\\$(VAR_C)bar", "foo\\Cbar"),
            ("foo\\\\$(VAR_C)bar", "foo\\\\Cbar"),
            ("foo$(VAR_EMPTY)bar", "foobar"),
            ("$(VAR_REF)", "$(VAR_A)"),
            ("%%$(VAR_REF)--$(VAR_REF)%%", "%%$(VAR_A)--$(VAR_A)%%"),
            ("$(MISSING)", "$(MISSING)"),
            ("$VAR_A", "$VAR_A"),
            ("$(VAR_A", "$(VAR_A"),
            ("$$$$$$$(VAR_A)", "$$$A"),
            ("$$$$$$(VAR_A)", "$$$(VAR_A)"),
            ("$(VAR_A)$", "A$"),
            ("$()", "$()"),
            ("", ""),
        ] {
            assert_eq!(expand(input, lookup), expected, "{input}");
        }
    }

    #[test]
    fn setting_a_variable_again_replaces_it_in_place() {
        let mut env = Environment::new();
        env.set("A", "1");
        env.set("B", env.expand("$(A)$(B)"));
        env.set("A", "2");
        assert_eq!(
            env.into_vec(),
            [("A".into(), "2".into()), ("B".into(), "1$(B)".into())]
        );
    }

    proptest! {
        #[test]
        fn text_without_a_dollar_is_unchanged(text in "[^$]*") {
            prop_assert_eq!(expand(&text, |_| Some("x")), text);
        }
        #[test]
        fn escaped_dollars_are_unescaped(text in ".*") {
            prop_assert_eq!(expand(&text.replace('$', "$$"), |_| Some("x")), text);
        }
    }
}
