//! How many volumes there should be and are, by plugin.

use std::collections::BTreeMap;

/// The plugins of one pod's volumes, one for each volume.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PodPlugins {
    /// Of the volumes that the pod should have.
    pub desired: Vec<String>,
    /// Of the volumes that containers can use.
    pub actual: Vec<String>,
}

/// The volumes of all pods.
#[derive(Debug, Default)]
pub struct VolumeCounts {
    pods: BTreeMap<String, PodPlugins>,
}

impl VolumeCounts {
    /// Sets the volumes of a pod; without any it is forgotten. Whether this is a change.
    pub fn set(&mut self, uid: &str, plugins: PodPlugins) -> bool {
        if plugins == PodPlugins::default() {
            return self.pods.remove(uid).is_some();
        }
        let before = self.pods.insert(uid.to_owned(), plugins);
        before.as_ref() != self.pods.get(uid)
    }

    /// The numbers by plugin and upstream's word for the state.
    pub fn totals(&self) -> BTreeMap<(&str, &'static str), usize> {
        let mut totals = BTreeMap::new();
        for pod in self.pods.values() {
            for (state, plugins) in [
                ("desired_state_of_world", &pod.desired),
                ("actual_state_of_world", &pod.actual),
            ] {
                for plugin in plugins {
                    *totals.entry((plugin.as_str(), state)).or_default() += 1;
                }
            }
        }
        totals
    }
}

/// Upstream's name of a plugin, by the name of its directory, and for CSI by its driver.
pub(super) fn plugin_name(directory: &str, driver: Option<&str>) -> String {
    let directory = directory.strip_prefix("devices/").unwrap_or(directory);
    match (directory, driver) {
        ("", _) => "N/A".to_owned(),
        (_, Some(driver)) => format!("{}:{driver}", directory.replace('~', "/")),
        (_, None) => directory.replace('~', "/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_count_by_plugin_and_state() {
        let plugins = |desired: &[&str], actual: &[&str]| PodPlugins {
            desired: desired.iter().map(|one| (*one).to_owned()).collect(),
            actual: actual.iter().map(|one| (*one).to_owned()).collect(),
        };
        let mut counts = VolumeCounts::default();
        assert!(counts.set("a", plugins(&["x", "x", "y"], &["x"])));
        assert!(!counts.set("a", plugins(&["x", "x", "y"], &["x"])));
        assert!(counts.set("b", plugins(&["x"], &["x"])));
        let totals = counts.totals();
        assert_eq!(totals[&("x", "desired_state_of_world")], 3);
        assert_eq!(totals[&("x", "actual_state_of_world")], 2);
        assert_eq!(totals[&("y", "desired_state_of_world")], 1);
        assert_eq!(totals.len(), 3);
        assert!(counts.set("a", PodPlugins::default()));
        assert_eq!(counts.totals().len(), 2);
    }

    #[test]
    fn plugins_have_upstream_names() {
        for (directory, driver, name) in [
            ("kubernetes.io~empty-dir", None, "kubernetes.io/empty-dir"),
            (
                "devices/kubernetes.io~csi",
                Some("d"),
                "kubernetes.io/csi:d",
            ),
            ("", None, "N/A"),
        ] {
            assert_eq!(plugin_name(directory, driver), name);
        }
    }
}
