//! Logins by place, and those that fit an image.

use std::collections::BTreeMap;

use super::docker_config::Logins;
use super::{Credential, Source, location};

/// The place that stands for Docker's own registry.
const DOCKER_HUB: &str = "index.docker.io";

/// Logins of one rank: all pull secrets of a pod, or the node's own.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    places: BTreeMap<String, Vec<Credential>>,
}

impl Keyring {
    /// Adds logins of one source; a place that can be none is left out.
    pub fn add(&mut self, source: &Source, logins: Logins) {
        for (written, login) in logins {
            let Some(place) = location::key(&written) else {
                continue;
            };
            let credential = Credential {
                login,
                source: source.clone(),
            };
            self.places
                .entry(place.into_owned())
                .or_default()
                .push(credential);
        }
    }

    /// What to try for an image (its full name without tag or digest), most specific place first.
    pub fn lookup(&self, image: &str) -> Vec<Credential> {
        let covering = self
            .places
            .iter()
            .rev()
            .filter(|(place, _)| location::covers(place, image));
        let found: Vec<Credential> = covering.flat_map(|(_, logins)| logins.clone()).collect();
        if found.is_empty() && location::is_docker_hub(image) {
            return self.places.get(DOCKER_HUB).cloned().unwrap_or_default();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Login;
    use super::*;

    fn ring(places: &[&str]) -> Keyring {
        let mut ring = Keyring::default();
        for place in places {
            let login = Login {
                username: (*place).to_owned(),
                ..Login::default()
            };
            ring.add(&Source::Node, Logins::from([((*place).to_owned(), login)]));
        }
        ring
    }

    fn found(places: &[&str], image: &str) -> Vec<String> {
        let found = ring(places).lookup(image).into_iter();
        found.map(|credential| credential.login.username).collect()
    }

    #[test]
    fn the_most_specific_place_comes_first() {
        let places = [
            "r.example",
            "r.example/team",
            "r.example/team/app",
            "*.example",
            "other.example",
        ];
        assert_eq!(
            found(&places, "r.example/team/app"),
            [
                "r.example/team/app",
                "r.example/team",
                "r.example",
                "*.example"
            ]
        );
        assert_eq!(found(&places, "r.example/x"), ["r.example", "*.example"]);
        assert!(found(&places, "r.example:5000/x").is_empty());
    }

    #[test]
    fn two_logins_of_one_place_are_both_tried() {
        let places = ["https://r.example/v1/", "r.example", "http://r.example"];
        assert_eq!(found(&places, "r.example/x").len(), 3);
    }

    #[test]
    fn docker_hub_by_any_of_its_names() {
        let places = ["https://index.docker.io/v1/", "r.example"];
        for image in ["docker.io/library/busybox", "docker.io/user/app", "busybox"] {
            assert_eq!(
                found(&places, image),
                ["https://index.docker.io/v1/"],
                "{image}"
            );
        }
        // A place of its own wins, and then the general one is not asked.
        let places = ["https://index.docker.io/v1/", "docker.io/user"];
        assert_eq!(found(&places, "docker.io/user/app"), ["docker.io/user"]);
    }

    proptest! {
        #[test]
        fn the_order_of_additions_decides_only_among_equals(mut places in prop::collection::btree_set("[a-c*]{1,2}\\.e(/[a-b]{1,2})?", 0..8)) {
            let forward: Vec<&str> = places.iter().map(String::as_str).collect();
            let backward: Vec<&str> = places.iter().rev().map(String::as_str).collect();
            prop_assert_eq!(found(&forward, "a.e/ab"), found(&backward, "a.e/ab"));
            places.clear();
        }
    }
}
