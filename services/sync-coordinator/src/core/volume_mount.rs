//! The options of a container's volumeMount: sub path and recursive read-only, with upstream's rules
//! and messages.

use std::collections::BTreeSet;
use std::fmt::Display;

use k8s_openapi::api::core::v1::{Container, VolumeMount};
use polylet_model::env::{self, Environment};

/// Linux opens no longer path (PATH_MAX).
const MAX_PATH_BYTES: usize = 4096;

/// Whether a container mounts parts of volumes.
pub fn has_sub_paths(container: &Container) -> bool {
    let is_set = |path: &Option<String>| path.as_ref().is_some_and(|path| !path.is_empty());
    let mut mounts = container.volume_mounts.iter().flatten();
    mounts.any(|mount| is_set(&mount.sub_path) || is_set(&mount.sub_path_expr))
}

/// The path in the volume that is mounted; empty for the whole volume.
///
/// # Errors
/// When a variable of `subPathExpr` has no value, or the path is absolute or leaves the volume.
pub fn sub_path(mount: &VolumeMount, env: &Environment) -> Result<String, String> {
    let path = expanded(mount, env)?;
    if path.starts_with('/') {
        return Err(format!(
            "error SubPath `{path}` must not be an absolute path"
        ));
    }
    if path.split('/').any(|element| element == "..") {
        return Err(format!(
            "unable to provision SubPath `{path}`: must not contain '..'"
        ));
    }
    Ok(path)
}

fn expanded(mount: &VolumeMount, env: &Environment) -> Result<String, String> {
    let Some(expression) = mount.sub_path_expr.as_deref().filter(|e| !e.is_empty()) else {
        return Ok(mount.sub_path.clone().unwrap_or_default());
    };
    let mut missing = BTreeSet::new();
    let path = env::expand(expression, MAX_PATH_BYTES, |name| {
        let value = env.get(name).filter(|value| !value.is_empty());
        if value.is_none() {
            missing.insert(name.to_owned());
        }
        value
    });
    if !missing.is_empty() {
        let missing: Vec<String> = missing.into_iter().collect();
        return Err(format!("missing value for {}", missing.join(", ")));
    }
    let of_mount = |error: &dyn Display| {
        let path = &mount.mount_path;
        format!("subPathExpr of the volume mount at {path:?} {error}")
    };
    let path = path.map_err(|error| of_mount(&error))?;
    String::from_utf8(path).map_err(|_| of_mount(&"expands to a path that is not UTF-8"))
}

/// Whether the mount is recursively read-only; `None` when that depends on the runtime.
///
/// # Errors
/// When the options of the mount conflict.
pub fn recursive_read_only(mount: &VolumeMount) -> Result<Option<bool>, String> {
    let mode = mount.recursive_read_only.as_deref();
    let Some(mode) = mode.filter(|mode| *mode != "Disabled") else {
        return Ok(Some(false));
    };
    let requested = || {
        format!(
            "failed to resolve recursive read-only mode: volume \"{}\" requested recursive \
             read-only mode, but it is not",
            mount.name
        )
    };
    if mount.read_only != Some(true) {
        return Err(format!("{} read-only", requested()));
    }
    let propagation = mount.mount_propagation.as_deref().unwrap_or("None");
    if propagation != "None" {
        return Err(format!(
            "{} compatible with propagation \"{propagation}\"",
            requested()
        ));
    }
    match mode {
        "Enabled" | "IfPossible" => Ok(None),
        _ => Err(format!(
            "failed to resolve recursive read-only mode: unknown recursive read-only mode \"{mode}\""
        )),
    }
}

/// Resolves a mode that depends on the runtime's support.
///
/// # Errors
/// When it is required and not supported.
pub fn resolve_recursive_read_only(mount: &VolumeMount, supported: bool) -> Result<bool, String> {
    if !supported && mount.recursive_read_only.as_deref() == Some("Enabled") {
        return Err(format!(
            "failed to resolve recursive read-only mode: volume \"{}\" requested recursive \
             read-only mode, but it is not supported by the runtime",
            mount.name
        ));
    }
    Ok(supported)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(read_only: bool, recursive: &str, propagation: Option<&str>) -> VolumeMount {
        VolumeMount {
            name: "v".into(),
            read_only: Some(read_only),
            recursive_read_only: Some(recursive.into()),
            mount_propagation: propagation.map(Into::into),
            ..Default::default()
        }
    }

    #[test]
    fn sub_path_expr_requires_every_variable() {
        let mut env = Environment::new();
        for (name, value) in [("POD", "web"), ("EMPTY", ""), ("UP", "..")] {
            env.set(name, value.as_bytes()).unwrap();
        }
        env.set("LONG", &[b'x'; 3000]).unwrap();
        env.set("BINARY", &[0xff]).unwrap();
        let expanded = |expression: &str| {
            let mount = VolumeMount {
                sub_path_expr: Some(expression.into()),
                ..Default::default()
            };
            sub_path(&mount, &env)
        };
        assert_eq!(expanded("logs/$(POD)").as_deref(), Ok("logs/web"));
        assert_eq!(expanded("$$(POD)").as_deref(), Ok("$(POD)"));
        assert_eq!(
            expanded("$(Z)/$(EMPTY)/$(A)/$(Z)").unwrap_err(),
            "missing value for A, EMPTY, Z"
        );
        assert_eq!(
            expanded("a/$(UP)").unwrap_err(),
            "unable to provision SubPath `a/..`: must not contain '..'"
        );
        assert_eq!(
            expanded("/$(POD)").unwrap_err(),
            "error SubPath `/web` must not be an absolute path"
        );
        assert_eq!(
            expanded("$(LONG)$(LONG)").unwrap_err(),
            "subPathExpr of the volume mount at \"\" expands to more than 4096 bytes"
        );
        assert!(expanded("$(BINARY)").unwrap_err().ends_with("is not UTF-8"));
        let plain = VolumeMount {
            sub_path: Some("$(POD)".into()),
            ..Default::default()
        };
        assert_eq!(sub_path(&plain, &env).as_deref(), Ok("$(POD)"));
    }

    #[test]
    fn recursive_read_only_depends_on_mode_propagation_and_runtime() {
        let mode = |mount: &VolumeMount| recursive_read_only(mount);
        assert_eq!(mode(&VolumeMount::default()), Ok(Some(false)));
        assert_eq!(mode(&mount(false, "Disabled", None)), Ok(Some(false)));
        assert_eq!(mode(&mount(true, "Enabled", None)), Ok(None));
        assert_eq!(mode(&mount(true, "IfPossible", Some("None"))), Ok(None));
        let start = "failed to resolve recursive read-only mode: ";
        let volume =
            format!("{start}volume \"v\" requested recursive read-only mode, but it is not");
        for (conflicting, message) in [
            (mount(false, "Enabled", None), format!("{volume} read-only")),
            (
                mount(true, "IfPossible", Some("HostToContainer")),
                format!("{volume} compatible with propagation \"HostToContainer\""),
            ),
            (
                mount(true, "Perhaps", None),
                format!("{start}unknown recursive read-only mode \"Perhaps\""),
            ),
        ] {
            assert_eq!(mode(&conflicting), Err(message));
        }
        assert_eq!(
            resolve_recursive_read_only(&mount(true, "IfPossible", None), false),
            Ok(false)
        );
        assert_eq!(
            resolve_recursive_read_only(&mount(true, "Enabled", None), true),
            Ok(true)
        );
        assert_eq!(
            resolve_recursive_read_only(&mount(true, "Enabled", None), false),
            Err(format!("{volume} supported by the runtime"))
        );
    }
}
