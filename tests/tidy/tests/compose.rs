//! `compose/`: containers have the rights of the units under `systemd/`, and the image's groups open each socket
//! for the services that are declared to call it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use polylet_packaging::facts::{self, Account, ServiceNeeds};
use polylet_packaging::{DESCRIPTORS, SUPERVISOR, accounts, callers};
use polylet_tidy::root;
use serde_yaml_ng::Value;

/// What `polylet-container` needs to give a service its directories and user.
const START: &[&str] = &["CHOWN", "DAC_READ_SEARCH", "SETGID", "SETPCAP", "SETUID"];

/// Capabilities of units that containers do without.
const UNNEEDED: &[(&str, &str, &str)] = &[(
    "supervisor",
    "DAC_READ_SEARCH",
    "it installs no programs: images hold them",
)];

/// Services that run as root and call the container runtime; the facts have those of users of their own.
const ROOT_WITH_RUNTIME: &[&str] = &["eviction", "sync-coordinator"];

/// Containers that are not ours.
const OTHERS: &[&str] = &["collector", "metrics", "trace-viewer"];

fn read(name: &str) -> String {
    let path = root().join("compose").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn services() -> BTreeMap<String, Value> {
    let mut file: Value = serde_yaml_ng::from_str(&read("compose.yaml")).expect("YAML");
    file.apply_merge().expect("merge keys");
    let services = file["services"].as_mapping().expect("services").clone();
    let pairs = services.into_iter();
    pairs
        .map(|(name, service)| (name.as_str().expect("a name").to_owned(), service))
        .collect()
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_sequence().into_iter().flatten();
    items
        .map(|item| item.as_str().expect("a string").to_owned())
        .collect()
}

/// The values of a directive in a service's facts.
fn directive(facts: &ServiceNeeds, name: &str) -> BTreeSet<String> {
    let directives = facts.needs.iter().flat_map(|need| need.directives);
    directives
        .filter(|(found, _)| *found == name)
        .flat_map(|(_, value)| value.split_whitespace())
        .map(str::to_owned)
        .collect()
}

fn capabilities(facts: &ServiceNeeds) -> BTreeSet<String> {
    let unneeded = |capability: &String| {
        let is = |(service, found, _): &(&str, &str, &str)| {
            *service == facts.service && found == capability
        };
        UNNEEDED.iter().any(is)
    };
    let all = directive(facts, "CapabilityBoundingSet").into_iter();
    all.map(|name| name.trim_start_matches("CAP_").to_owned())
        .filter(|name| !unneeded(name))
        .collect()
}

#[test]
fn every_service_has_a_container() {
    let found: BTreeSet<String> = services().into_keys().collect();
    let described = DESCRIPTORS.iter().map(|one| one.service);
    let expected = described.chain(OTHERS.iter().copied()).map(str::to_owned);
    assert_eq!(found, expected.collect());
}

#[test]
fn containers_have_the_rights_of_units() {
    let services = services();
    for descriptor in DESCRIPTORS {
        let name = descriptor.service;
        let (service, facts) = (&services[name], facts::of(name));
        let needed = capabilities(facts);
        let command = strings(&service["command"]);
        assert_eq!(command.first().map(String::as_str), Some(name));
        let given: BTreeSet<String> = command.into_iter().skip(1).collect();
        assert_eq!(given, needed, "{name}: capabilities of the command");
        let added: BTreeSet<String> = strings(&service["cap_add"]).into_iter().collect();
        let start = START.iter().map(|one| (*one).to_owned());
        let expected: BTreeSet<String> = needed.iter().cloned().chain(start).collect();
        assert_eq!(added, expected, "{name}: cap_add");
        assert_eq!(strings(&service["cap_drop"]), ["ALL"], "{name}");
        assert!(service["privileged"].is_null(), "{name} is privileged");
        let options = strings(&service["security_opt"]);
        assert!(
            options.contains(&"no-new-privileges:true".to_owned()),
            "{name}"
        );
        assert_eq!(service["read_only"], Value::Bool(true), "{name}");

        let network = match directive(facts, "RestrictAddressFamilies").is_empty() {
            true => "none",
            false => "host",
        };
        assert_eq!(service["network_mode"].as_str(), Some(network), "{name}");
        let number = |key: &str| service[key].as_u64();
        assert_eq!(number("pids_limit"), Some(facts.tasks_max.into()), "{name}");
        let shares = u64::from(facts.cpu_weight) * 1024 / 100;
        assert_eq!(number("cpu_shares"), Some(shares), "{name}");
    }
}

#[test]
fn the_runtime_is_reachable_where_it_is_called() {
    for (name, service) in services() {
        let volumes = service["volumes"].as_sequence().into_iter().flatten();
        let mut volumes = volumes.filter_map(Value::as_str);
        let has_runtime = volumes.any(|volume| volume.contains("POLYLET_RUNTIME_DIRECTORY"));
        let is_ours = !OTHERS.contains(&name.as_str());
        let expected = is_ours
            && (directive(facts::of(&name), "SupplementaryGroups").contains("root")
                || ROOT_WITH_RUNTIME.contains(&name.as_str()));
        assert_eq!(has_runtime, expected, "{name}");
    }
}

#[test]
fn containers_restart_and_are_checked() {
    for (name, service) in services() {
        assert_eq!(service["restart"].as_str(), Some("always"), "{name}");
        if OTHERS.contains(&name.as_str()) {
            let image = service["image"].as_str().unwrap_or_default();
            let pinned = image
                .rsplit_once(':')
                .is_some_and(|(_, tag)| tag != "latest");
            assert!(pinned, "{name}: {image} is not pinned");
            continue;
        }
        let test = strings(&service["healthcheck"]["test"]);
        assert_eq!(test, ["CMD", "polylet-container", "health", &name]);
        let variable = name.to_uppercase().replace('-', "_");
        let image = format!("${{POLYLET_{variable}_IMAGE:-${{POLYLET_IMAGE:-polylet:latest}}}}");
        assert_eq!(service["image"].as_str(), Some(image.as_str()));
    }
}

/// Fields of a file such as `/etc/group` by the name in the first one.
fn accounts_of(file: &str) -> BTreeMap<String, Vec<String>> {
    let mut accounts = BTreeMap::new();
    for line in read(file).lines() {
        let fields: Vec<String> = line.split(':').map(str::to_owned).collect();
        accounts.insert(fields[0].clone(), fields);
    }
    accounts
}

#[test]
fn users_and_groups_are_those_of_units() {
    let (users, groups) = (accounts_of("image/passwd"), accounts_of("image/group"));
    let set = |text: &str| -> BTreeSet<String> {
        let members = text.split(',').filter(|member| !member.is_empty());
        members.map(str::to_owned).collect()
    };
    let own_users = |wanted: &dyn Fn(&ServiceNeeds) -> bool| -> BTreeSet<String> {
        let all = facts::FACTS.iter();
        all.filter(|facts| facts.account == Account::Own && wanted(facts))
            .map(|facts| accounts::group(facts.service))
            .collect()
    };
    let mut numbers = BTreeSet::new();
    for descriptor in DESCRIPTORS {
        let name = accounts::group(descriptor.service);
        let group = &groups[&name];
        assert!(numbers.insert(group[2].clone()), "{name}: {}", group[2]);
        let is_own = facts::of(descriptor.service).account == Account::Own;
        let user = users
            .get(&name)
            .map(|user| (user[2].as_str(), user[3].as_str()));
        let number = group[2].as_str();
        assert_eq!(user, is_own.then_some((number, number)), "{name}");
        // Root may connect anywhere, as it may under systemd.
        let mut expected = BTreeSet::from(["root".to_owned()]);
        expected.extend(
            callers(descriptor.service)
                .into_iter()
                .filter_map(|caller| {
                    let is_own = facts::of(caller).account == Account::Own;
                    is_own.then(|| accounts::group(caller))
                }),
        );
        assert_eq!(set(&group[3]), expected, "{name}");
    }
    let certificates = &groups[accounts::CERTIFICATE_GROUP];
    assert!(numbers.insert(certificates[2].clone()));
    assert_eq!(
        set(&certificates[3]),
        own_users(&|facts| facts.writes_certificates)
    );
    let runtime = &groups["polylet-runtime"];
    assert_eq!(runtime[2], "0");
    let calls_runtime =
        |facts: &ServiceNeeds| directive(facts, "SupplementaryGroups").contains("root");
    assert_eq!(set(&runtime[3]), own_users(&calls_runtime));
    assert_eq!(users.len(), own_users(&|_| true).len());
    assert_eq!(groups.len(), DESCRIPTORS.len() + 2);
    assert!(groups.contains_key(&accounts::group(SUPERVISOR)));
}
