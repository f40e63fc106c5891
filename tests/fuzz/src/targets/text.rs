//! Short texts in manifests, requests and the environment.

use polylet_http::GetTarget;
use polylet_model::quantity::Amount;
use polylet_model::{cgroup, env, env_file, image, names, userns};
use polylet_pod_config::core::validate::names as valid;
use polylet_schedule::go_duration;
use polylet_sync_coordinator::runtime::dns;
use polylet_volume_manager::core::{payload, sub_path};

use super::manifests::now;
use crate::input::{halves, select, text as text_of};

/// The longest path, as in the kernel.
const MAX_PATH: usize = 4096;

/// One text, for the selected parser.
pub(super) fn text(data: &[u8]) {
    let (kind, data) = select(data, 12);
    let (first, second) = halves(data);
    let text = text_of(data);
    match kind {
        0 => quantity(text),
        1 => duration(text),
        2 => image_reference(text),
        // Invalid files are errors.
        3 => drop(
            env_file::EnvFile::parse(second)
                .value(text_of(first))
                .is_ok(),
        ),
        4 => expansion(text_of(first), text_of(second)),
        5 => resolv_conf(data),
        6 => url(text),
        7 => valid_names(text),
        8 => polylet_node_api::fuzzing::log_query(text, now()),
        9 => polylet_node_api::fuzzing::request(text_of(first), text_of(second)),
        10 => {
            cgroup::pod_uid_from_dir_name(text);
            // The operator's setting; a slice repeats its parents' names.
            if text.len() <= MAX_PATH {
                cgroup::CgroupName::from_config(text, cgroup::CgroupDriver::Systemd)
                    .path(cgroup::CgroupDriver::Systemd);
            }
            names::parse_pod_log_dir(text);
            // Invalid paths are errors.
            let _ = payload::clean(text);
            let path = sub_path::SubPath {
                mount_index: 0,
                volume: text_of(first).to_owned(),
                path: text_of(second).to_owned(),
            };
            let _ = sub_path::check("c", &path);
        }
        _ => subordinate_ids(text_of(second), text_of(first)),
    }
}

fn quantity(text: &str) {
    let Ok(amount) = Amount::parse(text) else {
        return;
    };
    amount.value();
    amount.millis();
    amount.bytes();
    let decimal = Amount::parse(&amount.to_decimal()).expect("a formatted quantity");
    assert!(
        decimal.nanos().abs_diff(amount.nanos()) < 1_000_000_000,
        "{text:?} is formatted as {decimal:?}"
    );
    Amount::parse(&amount.to_binary()).expect("a formatted quantity");
}

fn duration(text: &str) {
    if let Ok(duration) = go_duration::parse(text) {
        let formatted = go_duration::format(duration);
        assert_eq!(go_duration::parse(&formatted), Ok(duration), "{text:?}");
    }
}

fn image_reference(text: &str) {
    image::without_tag(text);
    image::default_pull_policy(text);
    image::same_image(text, "nginx");
    // Invalid names are errors.
    let _ = image::with_default_tag(text);
    if let Ok(normalized) = image::normalize(text) {
        assert_eq!(
            image::normalize(&normalized),
            Ok(normalized.clone()),
            "{text:?}"
        );
    }
}

fn expansion(text: &str, value: &str) {
    let limit = 1 << 20;
    let lookup = |name: &str| (name.len() < 4).then_some(value.as_bytes());
    if let Ok(expanded) = env::expand(text, limit, lookup) {
        assert!(expanded.len() <= limit, "larger than the limit");
    }
    env::is_valid_name(text);
}

fn resolv_conf(data: &[u8]) {
    // Invalid files are errors.
    let _ = dns::parse(text_of(data));
}

fn url(text: &str) {
    if let Ok(target) = GetTarget::parse(text) {
        target.authority();
        let again = GetTarget::parse(&target.url());
        assert!(again.is_ok(), "{text:?}");
    }
}

fn valid_names(text: &str) {
    for check in [
        valid::label,
        valid::subdomain,
        valid::port,
        valid::qualified,
        valid::label_value,
        valid::config_key,
        valid::env,
        valid::header,
        valid::sysctl,
        valid::local_path,
        valid::without_parent,
    ] {
        // Most texts are not valid names.
        let _ = check(text);
    }
}

fn subordinate_ids(file: &str, name: &str) {
    // Invalid files are errors.
    let _ = userns::subordinate_ids(name, file, file);
    let _ = userns::IdRange::from_json(file.as_bytes());
}
