//! Logins by location, and their lookup by image.

use std::collections::BTreeMap;

use crate::core::credentials::docker_config::Logins;
use crate::core::credentials::location::MatchBudget;
use crate::core::credentials::{Credential, CredentialSource, location};

/// The location of Docker Hub.
const DOCKER_HUB: &str = "index.docker.io";

/// The credentials for an image.
#[derive(Clone, Debug, Default)]
pub struct KeyringMatches {
    /// Most specific location first.
    pub credentials: Vec<Credential>,
    /// The locations were too expensive to compare: some were not.
    pub is_incomplete: bool,
}

/// Credentials of one rank: a pod's pull secrets, or the node's own.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    locations: BTreeMap<String, Vec<Credential>>,
}

impl Keyring {
    /// Adds logins of one source; invalid locations are skipped.
    pub fn add(&mut self, source: &CredentialSource, logins: Logins) {
        for (written, login) in logins {
            let Some(key) = location::normalize(&written) else {
                continue;
            };
            let credential = Credential {
                login,
                source: source.clone(),
            };
            self.locations
                .entry(key.into_owned())
                .or_default()
                .push(credential);
        }
    }

    /// The credentials for an image (full name without tag or digest).
    pub fn lookup(&self, image: &str) -> KeyringMatches {
        let mut budget = MatchBudget::default();
        let mut credentials = Vec::new();
        for (pattern, logins) in self.locations.iter().rev() {
            if location::matches(pattern, image, &mut budget) {
                credentials.extend_from_slice(logins);
            }
        }
        if credentials.is_empty() && location::is_docker_hub(image) {
            credentials = self.locations.get(DOCKER_HUB).cloned().unwrap_or_default();
        }
        KeyringMatches {
            credentials,
            is_incomplete: budget.is_exhausted(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::core::credentials::Login;

    fn ring(locations: &[&str]) -> Keyring {
        let mut ring = Keyring::default();
        for location in locations {
            let login = Login {
                username: (*location).to_owned(),
                ..Login::default()
            };
            ring.add(
                &CredentialSource::Node,
                Logins::from([((*location).to_owned(), login)]),
            );
        }
        ring
    }

    fn found(locations: &[&str], image: &str) -> Vec<String> {
        let found = ring(locations).lookup(image).credentials.into_iter();
        found.map(|credential| credential.login.username).collect()
    }

    #[test]
    fn the_most_specific_location_comes_first() {
        let locations = [
            "r.example",
            "r.example/team",
            "r.example/team/app",
            "*.example",
            "other.example",
        ];
        assert_eq!(
            found(&locations, "r.example/team/app"),
            [
                "r.example/team/app",
                "r.example/team",
                "r.example",
                "*.example"
            ]
        );
        assert_eq!(found(&locations, "r.example/x"), ["r.example", "*.example"]);
        assert!(found(&locations, "r.example:5000/x").is_empty());
    }

    #[test]
    fn hostile_locations_are_compared_in_bounded_time() {
        let hostile = (0..1000).map(|n| format!("*{}b{n}", "a".repeat(130)));
        let hostile: Vec<String> = hostile.collect();
        let mut locations: Vec<&str> = hostile.iter().map(String::as_str).collect();
        assert!(ring(&locations).lookup(&"a".repeat(255)).is_incomplete);
        locations = vec!["r.example", "*.*a*a*a*a*a*a*a*a*a*a*a*a"];
        let matches = ring(&locations).lookup(&format!("r.example/{}", "a".repeat(200)));
        assert!(!matches.is_incomplete);
        assert_eq!(matches.credentials.len(), 1);
    }

    #[test]
    fn all_logins_of_one_location_are_returned() {
        let locations = ["https://r.example/v1/", "r.example", "http://r.example"];
        assert_eq!(found(&locations, "r.example/x").len(), 3);
    }

    #[test]
    fn docker_hub_has_several_names() {
        let locations = ["https://index.docker.io/v1/", "r.example"];
        for image in ["docker.io/library/busybox", "docker.io/user/app", "busybox"] {
            assert_eq!(
                found(&locations, image),
                ["https://index.docker.io/v1/"],
                "{image}"
            );
        }
        // A more specific location replaces the general one.
        let locations = ["https://index.docker.io/v1/", "docker.io/user"];
        assert_eq!(found(&locations, "docker.io/user/app"), ["docker.io/user"]);
    }

    proptest! {
        #[test]
        fn the_order_of_additions_does_not_matter(mut locations in prop::collection::btree_set("[a-c*]{1,2}\\.e(/[a-b]{1,2})?", 0..8)) {
            let forward: Vec<&str> = locations.iter().map(String::as_str).collect();
            let backward: Vec<&str> = locations.iter().rev().map(String::as_str).collect();
            prop_assert_eq!(found(&forward, "a.e/ab"), found(&backward, "a.e/ab"));
            locations.clear();
        }
    }
}
