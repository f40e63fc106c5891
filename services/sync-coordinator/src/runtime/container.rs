//! Creation and start of containers.

use std::collections::BTreeMap;
use std::rc::Rc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use polylet_cri::v1;
use polylet_model::constants::reason;
use polylet_model::{ContainerKind, Manifest, hash, names};

use super::security::{self, ImageUser};
use super::{
    RuntimeManager, StepContext, container_metadata, cri_failure, devices, env, failure, files,
    image, mounts, plugin_devices, require_manifest, resources, sandbox,
};
use crate::core::pod_worker::restart;
use crate::core::runtime_state::{ContainerRecord, ContainerState};
use crate::core::step::{Step, StepFailure, StepOutcome};

/// Creates a container.
pub async fn create(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
) -> Result<StepOutcome, StepFailure> {
    let Step::CreateContainer {
        container: name,
        attempt,
        backoff_step,
        sandbox_id,
        image_ref,
    } = &context.step
    else {
        return Ok(StepOutcome::Done);
    };
    let manifest = require_manifest(context)?;
    let not_found = || {
        failure(
            reason::CREATE_CONTAINER_CONFIG_ERROR,
            format!("container {name} is not in the manifest"),
        )
    };
    let (kind, spec) = manifest.container(name).ok_or_else(not_found)?;
    let sandbox_attempt = context.sandbox(sandbox_id).map_or(0, |s| s.attempt);
    let attempt = match context.observed.newest_container(name) {
        Some(_) => *attempt,
        None => restart::unused_attempt(
            *attempt,
            files::logged_attempts(manager, &context.pod, name),
        ),
    };
    let config = config(manager, context, manifest, kind, spec, attempt).await?;
    let sandbox = sandbox::config(manager, context, manifest, sandbox_attempt).await?;
    let creation = manager
        .runtime
        .create_container(sandbox_id, config, sandbox);
    // Boxed: it takes 27 KB, which every step of a pod would have room for.
    let created = Box::pin(creation).await;
    let id = created.map_err(|error| {
        // One of its images may have been removed a moment ago.
        manager.images.forget_present();
        let mut failure = cri_failure(reason::CREATE_CONTAINER_ERROR, &error);
        failure.image_missing =
            error.is_not_found() && error.message().contains(image_ref.as_str());
        failure
    })?;
    Ok(StepOutcome::ContainerCreated(ContainerRecord {
        id,
        sandbox_id: sandbox_id.clone(),
        name: name.clone(),
        attempt,
        state: ContainerState::Created,
        exit_code: 0,
        reason: String::new(),
        aborted: false,
        hash: hash::container_hash_annotation(spec),
        backoff_step: *backoff_step,
        created_resources: Some(container_metadata::requested_resources(manifest, spec)),
        grace_period: None,
        pre_stop: polylet_model::hook::Hook::pre_stop(spec).map(Into::into),
        created_at: Some(Timestamp::now()),
        started_at: None,
        finished_at: None,
    }))
}

/// Links the log of a created container and starts it. The link comes first: no later process
/// instance would create it for a running container.
pub async fn start(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    container: &str,
    attempt: u32,
    id: &str,
) -> Result<StepOutcome, StepFailure> {
    files::create_log_link(manager, &context.pod, container, attempt, id);
    if let Err(error) = context.runtime(manager).start_container(id).await {
        let message = error.message();
        let mut failure = cri_failure(reason::RUN_CONTAINER_ERROR, &error);
        let in_progress = ["already in starting state", "is in CONTAINER_EXITED state"];
        if in_progress.iter().any(|state| message.contains(state)) {
            // The call of a previous process instance is still in progress, or has just ended: what
            // comes next follows from the container's state, without a delay.
            failure.name_reserved = true;
            failure.reason = reason::CONTAINER_CREATING.to_owned();
        }
        if !message.contains("is in CONTAINER_RUNNING state") {
            return Err(failure);
        }
    }
    Ok(StepOutcome::Done)
}

async fn config(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    manifest: &Manifest,
    kind: ContainerKind,
    spec: &Container,
    attempt: u32,
) -> Result<v1::ContainerConfig, StepFailure> {
    let Step::CreateContainer {
        backoff_step,
        sandbox_id,
        image_ref,
        ..
    } = &context.step
    else {
        return Ok(v1::ContainerConfig::default());
    };
    let ips = context
        .sandbox(sandbox_id)
        .map_or(&[][..], |sandbox| &sandbox.ips[..]);
    let mut env = env::environment(manager, context, manifest, spec, sandbox_id).await?;
    let prepared = context.prepared_devices.clone().unwrap_or_default();
    let mounts =
        mounts::container_mounts(manager, context, manifest, spec, attempt, ips, &env).await?;
    let mut mounts = plugin_devices::with_device_mounts(&prepared, mounts);
    files::create_log_dir(manager, &context.pod, &spec.name).map_err(|error| {
        failure(
            reason::CREATE_CONTAINER_CONFIG_ERROR,
            format!("failed to create the container's log directory: {error}"),
        )
    })?;
    let userns = sandbox::user_namespace(manager, context, manifest).await?;
    // Mounts are ID-mapped into the pod's user namespace.
    for mount in &mut mounts {
        let ids = userns.clone().unwrap_or_default();
        mount.uid_mappings = ids.uids;
        mount.gid_mappings = ids.gids;
    }
    let security = security_context(manager, context, manifest, kind, spec, userns).await?;
    let command = env::expand_arguments(spec, "command", &spec.command, &mut env)?;
    let args = env::expand_arguments(spec, "args", &spec.args, &mut env)?;
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: spec.name.clone(),
            attempt,
        }),
        image: Some(v1::ImageSpec {
            image: image_ref.clone(),
            user_specified_image: spec.image.clone().unwrap_or_default(),
            runtime_handler: image::handler(manager, manifest).await?,
            ..Default::default()
        }),
        command,
        args,
        working_dir: spec.working_dir.clone().unwrap_or_default(),
        envs: env
            .into_vec()
            .into_iter()
            .map(|(key, value)| v1::KeyValue { key, value })
            .collect(),
        mounts,
        devices: plugin_devices::with_device_nodes(
            &prepared,
            devices::container_devices(context, manifest, spec)?,
        ),
        cdi_devices: plugin_devices::cdi_devices(&prepared),
        labels: container_metadata::labels(context, spec),
        annotations: container_metadata::annotations(
            &prepared,
            manifest,
            spec,
            attempt,
            *backoff_step,
        ),
        log_path: names::container_log_path(&spec.name, attempt),
        stdin: spec.stdin == Some(true),
        stdin_once: spec.stdin_once == Some(true),
        tty: spec.tty == Some(true),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(resources::container_resources(manager, manifest, spec)),
            security_context: Some(security),
        }),
        stop_signal: stop_signal(spec, &manager.ctx.config().kubelet.feature_gates).into(),
    })
}

async fn security_context(
    manager: &RuntimeManager,
    context: &StepContext,
    manifest: &Manifest,
    kind: ContainerKind,
    spec: &Container,
    userns: Option<v1::UserNamespace>,
) -> Result<v1::LinuxContainerSecurityContext, StepFailure> {
    let Step::CreateContainer {
        sandbox_id,
        image_ref,
        ..
    } = &context.step
    else {
        return Ok(v1::LinuxContainerSecurityContext::default());
    };
    let target = ephemeral_target(context, manifest, spec, sandbox_id)?;
    let image_user = match security::user(manifest, spec) {
        Some(_) => None,
        None => Some(manager.images.user(image_ref).await?),
    };
    verify_run_as_non_root(manifest, spec, image_user.as_ref())?;
    let config = manager.ctx.config();
    let facts = security::SecurityFacts {
        target: target.map(|container| container.id.clone()),
        userns,
        volume_groups: &context.volume_groups(),
        image_user,
        root: &config.polylet.root_directory,
        seccomp_default: config.kubelet.seccomp_default,
    };
    Ok(security::container_context(manifest, kind, spec, &facts))
}

/// The container whose namespaces an ephemeral container joins.
fn ephemeral_target<'a>(
    context: &'a StepContext,
    manifest: &Manifest,
    spec: &Container,
    sandbox_id: &str,
) -> Result<Option<&'a ContainerRecord>, StepFailure> {
    let Some(name) = manifest.ephemeral_target(&spec.name) else {
        return Ok(None);
    };
    let target = context.observed.newest_container_in(name, sandbox_id);
    let target = target.ok_or_else(|| {
        let message = format!("unable to find target container {name}");
        failure(reason::CREATE_CONTAINER_CONFIG_ERROR, message)
    })?;
    Ok(Some(target))
}

/// The container's stop signal, if the feature gate is on (alpha, so off by default). Without one the
/// image or the runtime decides.
fn stop_signal(spec: &Container, gates: &BTreeMap<String, bool>) -> v1::Signal {
    if gates.get("ContainerStopSignals") != Some(&true) {
        return v1::Signal::RuntimeDefault;
    }
    let named = spec
        .lifecycle
        .as_ref()
        .and_then(|l| l.stop_signal.as_deref());
    // SIGRTMIN+1 in the API is SIGRTMINPLUS1 in the CRI.
    let name = named.map(|name| name.replace('+', "PLUS").replace('-', "MINUS"));
    name.and_then(|name| v1::Signal::from_str_name(&name))
        .unwrap_or(v1::Signal::RuntimeDefault)
}

/// Refuses a container with `runAsNonRoot` that would run as root, with the kubelet's messages.
fn verify_run_as_non_root(
    manifest: &Manifest,
    spec: &Container,
    image: Option<&ImageUser>,
) -> Result<(), StepFailure> {
    if !security::requires_non_root(manifest.spec(), spec) {
        return Ok(());
    }
    let error = match (security::user(manifest, spec), image) {
        (Some(0), _) => "container's runAsUser breaks non-root policy".to_owned(),
        (None, Some(ImageUser::Uid(0))) => {
            "container has runAsNonRoot and image will run as root".to_owned()
        }
        (None, Some(ImageUser::Uid(uid))) if !(0..=i64::from(i32::MAX)).contains(uid) => format!(
            "container has runAsNonRoot and image has an invalid user id ({uid}). (Must be 1-({max})): must be between 0 and {max}, inclusive",
            max = i32::MAX
        ),
        (None, Some(ImageUser::Name(name))) => format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root"
        ),
        _ => return Ok(()),
    };
    let target = format!(
        "(pod: \"{}_{}({})\", container: {})",
        manifest.name(),
        manifest.namespace(),
        manifest.uid(),
        spec.name
    );
    let message = format!("{error} {target}");
    Err(failure(reason::CREATE_CONTAINER_CONFIG_ERROR, message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn non_root_containers_have_messages_as_upstream() {
        let error = |user: Option<i64>, image: ImageUser| {
            let context = json!({"runAsNonRoot": true, "runAsUser": user});
            let containers = json!([{"name": "c", "securityContext": context}]);
            let pod = json!({"metadata": {"name": "web", "namespace": "default", "uid": "u1"},
                "spec": {"containers": containers}});
            let manifest = Manifest::from_json(pod.to_string().as_bytes()).unwrap();
            let spec = &manifest.spec().containers[0];
            let verified = verify_run_as_non_root(&manifest, spec, Some(&image));
            verified.err().map(|failure| failure.message)
        };
        let invalid = |uid: i64| {
            format!(
                "container has runAsNonRoot and image has an invalid user id ({uid}). (Must be \
                 1-(2147483647)): must be between 0 and 2147483647, inclusive (pod: \
                 \"web_default(u1)\", container: c)"
            )
        };
        for (uid, expected) in [
            (1000, None),
            (2_147_483_647, None),
            (2_147_483_648, Some(invalid(2_147_483_648))),
            (-1, Some(invalid(-1))),
        ] {
            assert_eq!(error(None, ImageUser::Uid(uid)), expected);
            assert_eq!(error(Some(7), ImageUser::Uid(uid)), None);
        }
        let name = error(None, ImageUser::Name("app".to_owned())).unwrap();
        assert!(name.contains("non-numeric user (app)"), "{name}");
        let root = error(None, ImageUser::Uid(0)).unwrap();
        assert!(root.contains("image will run as root"), "{root}");
    }

    #[test]
    fn stop_signals_depend_on_their_gate() {
        let on = BTreeMap::from([("ContainerStopSignals".to_owned(), true)]);
        let off = BTreeMap::from([("ContainerStopSignals".to_owned(), false)]);
        let container = |signal: &str| Container {
            lifecycle: Some(k8s_openapi::api::core::v1::Lifecycle {
                stop_signal: Some(signal.to_owned()),
                ..Default::default()
            }),
            ..Default::default()
        };
        for (signal, expected) in [
            ("SIGUSR1", v1::Signal::Sigusr1),
            ("SIGRTMIN+1", v1::Signal::Sigrtminplus1),
            ("SIGRTMAX-14", v1::Signal::Sigrtmaxminus14),
            ("SIGNONE", v1::Signal::RuntimeDefault),
        ] {
            assert_eq!(stop_signal(&container(signal), &on), expected, "{signal}");
            for gates in [&off, &BTreeMap::new()] {
                let signal = stop_signal(&container(signal), gates);
                assert_eq!(signal, v1::Signal::RuntimeDefault);
            }
        }
        let none = stop_signal(&Container::default(), &on);
        assert_eq!(none, v1::Signal::RuntimeDefault);
    }
}
