//! Containers: made, and started.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use polylet_cri::labels::PodLabels;
use polylet_cri::v1;
use polylet_model::constants::{annotation, label, reason};
use polylet_model::env::Environment;
use polylet_model::{Amounts, ContainerKind, Manifest, hash, names};

use super::image::User;
use super::{
    Hands, Job, devices, env, files, image, manifest, mounts, resources, runtime_said, said,
    sandbox, security,
};
use crate::core::learn::{Outcome, Trouble};
use crate::core::observed::{Phase, SeenContainer};
use crate::core::restart;
use crate::core::step::Step;

/// Makes a container.
pub async fn create(hands: &Rc<Hands>, job: &Job) -> Result<Outcome, Trouble> {
    let Step::CreateContainer {
        container: name,
        attempt,
        back_off_step,
        sandbox_id,
        image_ref,
    } = &job.step
    else {
        return Ok(Outcome::Done);
    };
    let manifest = manifest(job)?;
    let unknown = || {
        said(
            reason::CREATE_CONTAINER_CONFIG_ERROR,
            format!("container {name} is not in the manifest"),
        )
    };
    let (kind, spec) = manifest.container(name).ok_or_else(unknown)?;
    let place = job.sandbox(sandbox_id);
    let attempt = match job.observed.newest(name) {
        Some(_) => *attempt,
        None => restart::unused_attempt(*attempt, files::logged_attempts(hands, &job.pod, name)),
    };
    let config = config(hands, job, manifest, kind, spec, attempt).await?;
    let sandbox = sandbox::config(hands, job, manifest, place.map_or(0, |s| s.attempt)).await?;
    let made = hands
        .runtime
        .create_container(sandbox_id, config, sandbox)
        .await;
    let id = made.map_err(|error| {
        let mut trouble = runtime_said(reason::CREATE_CONTAINER_ERROR, &error);
        trouble.image_missing =
            error.is_not_found() && error.message().contains(image_ref.as_str());
        trouble
    })?;
    Ok(Outcome::Created(SeenContainer {
        id,
        sandbox_id: sandbox_id.clone(),
        name: name.clone(),
        attempt,
        phase: Phase::Created,
        exit_code: 0,
        reason: String::new(),
        aborted: false,
        hash: hash::container_annotation(spec),
        back_off_step: *back_off_step,
        made_with: Some(amounts(manifest, spec)),
        grace: None,
        pre_stop: polylet_model::hook::Hook::pre_stop(spec).map(Into::into),
        created_at: Some(Timestamp::now()),
        started_at: None,
        finished_at: None,
    }))
}

/// Links a made container's log and starts it. The link comes first: should the
/// process die in between, nobody would come back to make it.
pub async fn start(
    hands: &Rc<Hands>,
    job: &Job,
    container: &str,
    attempt: u32,
    id: &str,
) -> Result<Outcome, Trouble> {
    files::link_log(hands, &job.pod, container, attempt, id);
    if let Err(error) = job.runtime(hands).start_container(id).await {
        let said = error.message();
        let mut trouble = runtime_said(reason::RUN_CONTAINER_ERROR, &error);
        if said.contains("already in starting state") {
            // A former life's call, which the runtime is still at.
            trouble.reserved = true;
            trouble.reason = reason::CONTAINER_CREATING.to_owned();
        }
        if !said.contains("is in CONTAINER_RUNNING state") {
            return Err(trouble);
        }
    }
    Ok(Outcome::Done)
}

async fn config(
    hands: &Rc<Hands>,
    job: &Job,
    manifest: &Manifest,
    kind: ContainerKind,
    spec: &Container,
    attempt: u32,
) -> Result<v1::ContainerConfig, Trouble> {
    let Step::CreateContainer {
        back_off_step,
        sandbox_id,
        image_ref,
        ..
    } = &job.step
    else {
        return Ok(v1::ContainerConfig::default());
    };
    let settings = hands.ctx.config();
    let ips = job
        .sandbox(sandbox_id)
        .map(|s| s.ips.clone())
        .unwrap_or_default();
    let host_ips = match &*job.host_ips {
        // The object is not made yet, or nobody else makes one.
        [] => polylet_kit::address::of_node(settings)
            .map(|ip| ip.to_string())
            .into_iter()
            .collect(),
        told => told.to_vec(),
    };
    let env = env::of(
        hands,
        manifest,
        spec,
        &env::Facts {
            pod_ips: &ips,
            host_ips: &host_ips,
            volumes: &job.volumes,
        },
    )
    .await?;
    let mut mounts = mounts::of(hands, job, manifest, spec, attempt, &ips, &env).await?;
    files::make_log_dir(hands, &job.pod, &spec.name).map_err(|e| {
        said(
            reason::CREATE_CONTAINER_CONFIG_ERROR,
            format!("the container's log folder: {e}"),
        )
    })?;
    let target = manifest
        .ephemeral_target(&spec.name)
        .and_then(|t| job.observed.newest_in(t, sandbox_id));
    let root = &settings.polylet.root_directory;
    let target = target.map(|c| c.id.clone());
    let userns = sandbox::userns_of(hands, job, manifest).await?;
    // What is mounted has the pod's ids inside the pod.
    for mount in &mut mounts {
        let ids = userns.clone().unwrap_or_default();
        mount.uid_mappings = ids.uids;
        mount.gid_mappings = ids.gids;
    }
    let image_user = match security::user(manifest, spec) {
        Some(_) => None,
        None => Some(hands.images.user(image_ref).await?),
    };
    not_root(manifest, spec, image_user.as_ref())?;
    let about = security::About {
        target,
        userns,
        volume_groups: &job.volume_groups(),
        image_user,
        root,
        seccomp_default: settings.kubelet.seccomp_default,
    };
    let security = security::of_container(manifest, kind, spec, &about);
    let expanded = |words: &Option<Vec<String>>| expand(words, &env);
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: spec.name.clone(),
            attempt,
        }),
        image: Some(v1::ImageSpec {
            image: image_ref.clone(),
            user_specified_image: spec.image.clone().unwrap_or_default(),
            runtime_handler: image::handler(hands, manifest).await?,
            ..Default::default()
        }),
        command: expanded(&spec.command),
        args: expanded(&spec.args),
        working_dir: spec.working_dir.clone().unwrap_or_default(),
        envs: env
            .iter()
            .map(|(key, value)| v1::KeyValue {
                key: key.into(),
                value: value.as_bytes().to_vec(),
            })
            .collect(),
        mounts,
        devices: devices::of(job, manifest, spec)?,
        labels: labels(job, spec),
        annotations: annotations(manifest, spec, attempt, *back_off_step),
        log_path: names::container_log_path(&spec.name, attempt),
        stdin: spec.stdin == Some(true),
        stdin_once: spec.stdin_once == Some(true),
        tty: spec.tty == Some(true),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(resources::of_container(hands, manifest, spec)),
            security_context: Some(security),
        }),
        stop_signal: stop_signal(spec, &settings.kubelet.feature_gates).into(),
        ..Default::default()
    })
}

/// What the container is told with that it is to end, behind upstream's gate (alpha, so off unless
/// the configuration turns it on). Without one the image or the runtime decides.
fn stop_signal(spec: &Container, gates: &BTreeMap<String, bool>) -> v1::Signal {
    if gates.get("ContainerStopSignals") != Some(&true) {
        return v1::Signal::RuntimeDefault;
    }
    let named = spec
        .lifecycle
        .as_ref()
        .and_then(|l| l.stop_signal.as_deref());
    // The API writes SIGRTMIN+1 what the runtime interface calls SIGRTMINPLUS1.
    let name = named.map(|name| name.replace('+', "PLUS").replace('-', "MINUS"));
    name.and_then(|name| v1::Signal::from_str_name(&name))
        .unwrap_or(v1::Signal::RuntimeDefault)
}

fn expand(words: &Option<Vec<String>>, env: &Environment) -> Vec<String> {
    words
        .iter()
        .flatten()
        .map(|word| env.expand(word))
        .collect()
}

fn labels(job: &Job, spec: &Container) -> HashMap<String, String> {
    let pod = &job.pod;
    let mut labels = HashMap::new();
    PodLabels {
        uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
    }
    .write(&mut labels);
    labels.insert(label::CONTAINER_NAME.to_owned(), spec.name.clone());
    labels
}

fn amounts(manifest: &Manifest, spec: &Container) -> Amounts {
    let own = spec.resources.clone().unwrap_or_default();
    Amounts::of(manifest.spec().resources.as_ref(), &own)
}

/// What a container carries about itself, readable without the manifest.
fn annotations(
    manifest: &Manifest,
    spec: &Container,
    attempt: u32,
    back_off_step: u32,
) -> HashMap<String, String> {
    let mut notes = HashMap::from([
        (
            annotation::CONTAINER_HASH.to_owned(),
            hash::container_annotation(spec),
        ),
        (annotation::RESTART_COUNT.to_owned(), attempt.to_string()),
        (
            annotation::TERMINATION_MESSAGE_PATH.to_owned(),
            spec.termination_message_path.clone().unwrap_or_default(),
        ),
        (
            annotation::TERMINATION_MESSAGE_POLICY.to_owned(),
            spec.termination_message_policy.clone().unwrap_or_default(),
        ),
        (
            annotation::BACK_OFF_STEP.to_owned(),
            back_off_step.to_string(),
        ),
        (
            annotation::POD_TERMINATION_GRACE_PERIOD.to_owned(),
            manifest.termination_grace().as_secs().to_string(),
        ),
    ]);
    if let Some(grace) = manifest.deletion_grace() {
        notes.insert(
            annotation::POD_DELETION_GRACE_PERIOD.to_owned(),
            grace.as_secs().to_string(),
        );
    }
    let json = |value: Result<String, serde_json::Error>| value.ok();
    if let Some(text) = json(serde_json::to_string(&amounts(manifest, spec))) {
        notes.insert(annotation::MADE_WITH.to_owned(), text);
    }
    if let Some(hook) = spec.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref())
        && let Some(text) = json(serde_json::to_string(hook))
    {
        notes.insert(annotation::PRE_STOP_HANDLER.to_owned(), text);
    }
    if let Some(ports) = spec.ports.as_ref().filter(|p| !p.is_empty())
        && let Some(text) = json(serde_json::to_string(ports))
    {
        notes.insert(annotation::PORTS.to_owned(), text);
    }
    notes
}

/// Holds a container that must not be root to it, as upstream words it.
fn not_root(manifest: &Manifest, spec: &Container, image: Option<&User>) -> Result<(), Trouble> {
    if !security::must_not_be_root(manifest.spec(), spec) {
        return Ok(());
    }
    let why = match (security::user(manifest, spec), image) {
        (Some(0), _) => "container's runAsUser breaks non-root policy".to_owned(),
        (None, Some(User::Number(0))) => {
            "container has runAsNonRoot and image will run as root".to_owned()
        }
        (None, Some(User::Named(name))) => format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root"
        ),
        _ => return Ok(()),
    };
    let who = format!(
        "(pod: \"{}_{}({})\", container: {})",
        manifest.name(),
        manifest.namespace(),
        manifest.uid(),
        spec.name
    );
    let words = format!("{why} {who}");
    Err(said(reason::CREATE_CONTAINER_CONFIG_ERROR, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_signals_follow_their_gate() {
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
                let followed = stop_signal(&container(signal), gates);
                assert_eq!(followed, v1::Signal::RuntimeDefault);
            }
        }
        let none = stop_signal(&Container::default(), &on);
        assert_eq!(none, v1::Signal::RuntimeDefault);
    }
}
