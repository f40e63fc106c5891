//! Environment variables of containers, and `$(VAR)` expansion.
//!
//! Values may refer to each other and to objects of a megabyte, so a small manifest can describe an
//! environment of any size. [`Environment`] holds at most [`MAX_PROCESS_BYTES`] and expands to at
//! most [`MAX_EXPANSION_BYTES`].

use std::collections::BTreeMap;

/// The most bytes of variables, command and arguments of one container. No container that works has
/// more: whatever its stack limit, Linux starts no program with more than 6 MiB of them
/// (`bprm_set_stack_limit`; 2 MiB with the usual stack limit). Up to here the runtime decides.
pub const MAX_PROCESS_BYTES: usize = 8 << 20;

/// The most bytes of values that are set or expanded for one container, including those of variables
/// that are set again later: bounds the work, where the other limit bounds the memory.
pub const MAX_EXPANSION_BYTES: usize = 64 << 20;

/// The most characters of a variable's name in an error message.
const MAX_NAME_CHARS: usize = 128;

/// A text that expands to more than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expands to more than {limit} bytes")]
pub struct ExpansionTooLarge {
    /// The most bytes that are allowed.
    pub limit: usize,
}

/// An environment that is too large. Shows names and no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentTooLarge {
    /// Of more than [`MAX_PROCESS_BYTES`].
    #[error(
        "{at} exceeds the limit of {MAX_PROCESS_BYTES} bytes for environment variables, command and arguments"
    )]
    Process {
        /// The variable or argument at which the limit is exceeded.
        at: String,
    },
    /// Of values of more than [`MAX_EXPANSION_BYTES`].
    #[error(
        "{at} exceeds the limit of {MAX_EXPANSION_BYTES} bytes for setting and expanding environment variables"
    )]
    Expansion {
        /// The variable or argument at which the limit is exceeded.
        at: String,
    },
}

/// Replaces `$(NAME)` by the value that `lookup` returns for NAME. `$$` is an escaped `$`: `$$(NAME)`
/// becomes `$(NAME)`. References to unknown names, and any other text, are left unchanged. Takes time
/// in proportion to the text and the result.
///
/// # Errors
/// When the result has more than `limit` bytes.
pub fn expand<'a>(
    text: &str,
    limit: usize,
    mut lookup: impl FnMut(&str) -> Option<&'a [u8]>,
) -> Result<Vec<u8>, ExpansionTooLarge> {
    let mut out = BoundedBytes {
        bytes: Vec::with_capacity(text.len().min(limit)),
        limit,
    };
    let mut rest = text;
    // Searched once: without it, each `$(` would search the rest of the text.
    let last_closer = text.rfind(')').unwrap_or(0);
    while let Some((before, tail)) = rest.split_once('$') {
        out.push(before.as_bytes())?;
        let is_closed = text.len() - tail.len() < last_closer;
        let reference = || tail.strip_prefix('(')?.split_once(')');
        if let Some(after) = tail.strip_prefix('$') {
            out.push(b"$")?;
            rest = after;
        } else if let Some((name, after)) = is_closed.then(reference).flatten() {
            match lookup(name) {
                Some(value) => out.push(value)?,
                None => {
                    for part in ["$(", name, ")"] {
                        out.push(part.as_bytes())?;
                    }
                }
            }
            rest = after;
        } else {
            out.push(b"$")?;
            rest = tail;
        }
    }
    out.push(rest.as_bytes())?;
    Ok(out.bytes)
}

struct BoundedBytes {
    bytes: Vec<u8>,
    limit: usize,
}

impl BoundedBytes {
    fn push(&mut self, bytes: &[u8]) -> Result<(), ExpansionTooLarge> {
        let limit = self.limit;
        if bytes.len() > limit.saturating_sub(self.bytes.len()) {
            return Err(ExpansionTooLarge { limit });
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// Variables in the order in which they were first set. Setting one again replaces its value in
/// place. Values are bytes, as those of Secrets are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    variables: Vec<(String, Vec<u8>)>,
    positions: BTreeMap<String, usize>,
    /// Variables that the pod has not set itself: those of Services. They can be referred to.
    fallback: BTreeMap<String, String>,
    process_bytes: usize,
    expanded_bytes: usize,
}

impl Environment {
    /// An empty environment.
    pub fn new() -> Self {
        Self::default()
    }

    /// An environment with the variables of Services as a fallback.
    pub fn with_fallback(fallback: BTreeMap<String, String>) -> Self {
        Environment {
            fallback,
            ..Environment::default()
        }
    }

    /// Adds the fallback variables that have not been set.
    ///
    /// # Errors
    /// When the environment becomes too large.
    pub fn add_fallback(&mut self) -> Result<(), EnvironmentTooLarge> {
        for (name, value) in std::mem::take(&mut self.fallback) {
            if self.get(&name).is_none() {
                self.set(&name, value.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Sets a variable.
    ///
    /// # Errors
    /// When the environment becomes too large.
    pub fn set(&mut self, name: &str, value: &[u8]) -> Result<(), EnvironmentTooLarge> {
        self.set_bytes(name, value.len(), |_| Ok(value.to_vec()))
    }

    /// Sets a variable to a text with references to variables set so far, and to fallback variables.
    ///
    /// # Errors
    /// When the environment becomes too large.
    pub fn set_expanded(&mut self, name: &str, text: &str) -> Result<(), EnvironmentTooLarge> {
        self.set_bytes(name, 0, |env| env.expand(text, || variable(name)))
    }

    /// Puts variables before all others. A variable of the same name that is set already has precedence,
    /// as the later one.
    ///
    /// # Errors
    /// When the environment becomes too large.
    pub fn prepend(
        &mut self,
        variables: &BTreeMap<String, String>,
    ) -> Result<(), EnvironmentTooLarge> {
        for (name, value) in variables {
            let process = process_bytes(name, value.len());
            self.charge(process, value.len(), || variable(name))?;
        }
        let own = std::mem::take(&mut self.variables);
        let added = variables.iter();
        let added = added.map(|(name, value)| (name.clone(), value.clone().into_bytes()));
        self.variables = added.chain(own).collect();
        let names = self.variables.iter().enumerate();
        self.positions = names
            .map(|(position, (name, _))| (name.clone(), position))
            .collect();
        Ok(())
    }

    /// Expands one text of the command or the arguments. `at` names it in the error.
    ///
    /// # Errors
    /// When variables, command and arguments become too large together.
    pub fn expand_argument(
        &mut self,
        text: &str,
        at: impl Fn() -> String,
    ) -> Result<Vec<u8>, EnvironmentTooLarge> {
        let expanded = self.expand(text, &at)?;
        // With the NUL that ends it.
        self.charge(expanded.len() + 1, expanded.len(), at)?;
        Ok(expanded)
    }

    /// A variable's value.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let (_, value) = self.variables.get(*self.positions.get(name)?)?;
        Some(value)
    }

    /// The variables that are set, in order.
    pub fn into_vec(self) -> Vec<(String, Vec<u8>)> {
        self.variables
    }

    fn set_bytes(
        &mut self,
        name: &str,
        least: usize,
        value: impl FnOnce(&Self) -> Result<Vec<u8>, EnvironmentTooLarge>,
    ) -> Result<(), EnvironmentTooLarge> {
        let at = || variable(name);
        let position = self.positions.get(name).copied();
        let replaced = position.and_then(|position| self.variables.get(position));
        let freed = replaced.map_or(0, |(name, value)| process_bytes(name, value.len()));
        self.check(process_bytes(name, least).saturating_sub(freed), least, at)?;
        let value = value(self)?;
        self.process_bytes = self.process_bytes.saturating_sub(freed);
        self.charge(process_bytes(name, value.len()), value.len(), at)?;
        match position.and_then(|position| self.variables.get_mut(position)) {
            Some((_, current)) => *current = value,
            None => {
                self.positions.insert(name.to_owned(), self.variables.len());
                self.variables.push((name.to_owned(), value));
            }
        }
        Ok(())
    }

    fn expand(
        &self,
        text: &str,
        at: impl FnOnce() -> String,
    ) -> Result<Vec<u8>, EnvironmentTooLarge> {
        let left = MAX_EXPANSION_BYTES.saturating_sub(self.expanded_bytes);
        let limit = MAX_PROCESS_BYTES.min(left);
        let expanded = expand(text, limit, |name| {
            let fallback = || self.fallback.get(name).map(String::as_bytes);
            self.get(name).or_else(fallback)
        });
        expanded.map_err(|_| match limit {
            MAX_PROCESS_BYTES => EnvironmentTooLarge::Process { at: at() },
            _ => EnvironmentTooLarge::Expansion { at: at() },
        })
    }

    fn charge(
        &mut self,
        process: usize,
        expanded: usize,
        at: impl Fn() -> String,
    ) -> Result<(), EnvironmentTooLarge> {
        self.check(process, expanded, at)?;
        self.process_bytes += process;
        self.expanded_bytes += expanded;
        Ok(())
    }

    fn check(
        &self,
        process: usize,
        expanded: usize,
        at: impl Fn() -> String,
    ) -> Result<(), EnvironmentTooLarge> {
        if process > MAX_PROCESS_BYTES.saturating_sub(self.process_bytes) {
            return Err(EnvironmentTooLarge::Process { at: at() });
        }
        if expanded > MAX_EXPANSION_BYTES.saturating_sub(self.expanded_bytes) {
            return Err(EnvironmentTooLarge::Expansion { at: at() });
        }
        Ok(())
    }
}

/// What a variable takes of a process: `NAME=value` and the NUL that ends it.
fn process_bytes(name: &str, value: usize) -> usize {
    name.len() + value + 2
}

fn variable(name: &str) -> String {
    let end = name.char_indices().nth(MAX_NAME_CHARS);
    match end.and_then(|(end, _)| name.get(..end)) {
        Some(start) => format!("variable {start:?}…"),
        None => format!("variable {name:?}"),
    }
}

/// Whether a name is valid: printable ASCII without `=`, as the API has accepted since 1.32 (relaxed
/// validation).
pub fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'=')
}

#[cfg(test)]
mod tests;
