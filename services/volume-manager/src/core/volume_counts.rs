//! How many volumes there should be and are, by plugin.

use std::collections::BTreeMap;

use polylet_model::PodUid;

/// The plugins of one pod's volumes, one for each volume.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PodPlugins {
    /// Of the volumes that the pod should have.
    pub desired: Vec<String>,
    /// Of the volumes that containers can use.
    pub actual: Vec<String>,
}

impl PodPlugins {
    fn keys(&self) -> impl Iterator<Item = (String, &'static str)> {
        let desired = self.desired.iter();
        let desired = desired.map(|plugin| (plugin.clone(), "desired_state_of_world"));
        let actual = self.actual.iter();
        desired.chain(actual.map(|plugin| (plugin.clone(), "actual_state_of_world")))
    }
}

/// The volumes of all pods.
#[derive(Debug, Default)]
pub struct VolumeCounts {
    pods: BTreeMap<PodUid, PodPlugins>,
    totals: VolumeTotals,
}

/// Numbers of volumes by plugin and upstream's word for the state; none is 0.
pub type VolumeTotals = BTreeMap<(String, &'static str), usize>;

impl VolumeCounts {
    /// Sets the volumes of a pod; without any it is forgotten. Whether this is a change.
    pub fn set(&mut self, uid: &PodUid, plugins: PodPlugins) -> bool {
        if self.pods.get(uid).unwrap_or(&PodPlugins::default()) == &plugins {
            return false;
        }
        for key in plugins.keys() {
            *self.totals.entry(key).or_default() += 1;
        }
        let before = match plugins == PodPlugins::default() {
            true => self.pods.remove(uid),
            false => self.pods.insert(uid.clone(), plugins),
        };
        for key in before.unwrap_or_default().keys() {
            let total = self.totals.get_mut(&key);
            if let Some(total) = total.filter(|total| **total > 1) {
                *total -= 1;
            } else {
                self.totals.remove(&key);
            }
        }
        true
    }

    /// The numbers of all pods.
    pub fn totals(&self) -> &VolumeTotals {
        &self.totals
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
        let (a, b) = (PodUid::from("a"), PodUid::from("b"));
        let totals = |counts: &VolumeCounts| {
            let totals = counts.totals().iter();
            let totals = totals.map(|((plugin, state), count)| format!("{plugin} {state} {count}"));
            totals.collect::<Vec<_>>()
        };
        assert!(!counts.set(&a, PodPlugins::default()));
        assert!(counts.set(&a, plugins(&["x", "x", "y"], &["x"])));
        assert!(!counts.set(&a, plugins(&["x", "x", "y"], &["x"])));
        assert!(counts.set(&b, plugins(&["x"], &["x"])));
        assert_eq!(
            totals(&counts),
            [
                "x actual_state_of_world 2",
                "x desired_state_of_world 3",
                "y desired_state_of_world 1",
            ]
        );
        assert!(counts.set(&b, plugins(&["y"], &["x"])));
        assert!(counts.set(&a, PodPlugins::default()));
        assert_eq!(
            totals(&counts),
            ["x actual_state_of_world 1", "y desired_state_of_world 1"]
        );
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
