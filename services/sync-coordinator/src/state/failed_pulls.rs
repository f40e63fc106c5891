//! Pods that could not pull an image: another pod's pull of it ends their wait.

use std::collections::{BTreeMap, BTreeSet};

use polylet_model::PodUid;

/// The images of failed pulls and their pods, of which few have any.
#[derive(Debug, Default)]
pub(crate) struct FailedPulls {
    pods: BTreeMap<String, BTreeSet<PodUid>>,
    images: BTreeMap<PodUid, BTreeSet<String>>,
}

impl FailedPulls {
    /// Sets the images that a pod could not pull; without any it is forgotten.
    pub(crate) fn set(&mut self, uid: &PodUid, images: BTreeSet<String>) {
        if self.images.get(uid).unwrap_or(&BTreeSet::new()) == &images {
            return;
        }
        self.remove(uid);
        for image in &images {
            let pods = self.pods.entry(image.clone()).or_default();
            pods.insert(uid.clone());
        }
        if !images.is_empty() {
            self.images.insert(uid.clone(), images);
        }
    }

    /// Forgets a pod.
    pub(crate) fn remove(&mut self, uid: &PodUid) {
        for image in self.images.remove(uid).unwrap_or_default() {
            if let Some(pods) = self.pods.get_mut(&image) {
                pods.remove(uid);
                if pods.is_empty() {
                    self.pods.remove(&image);
                }
            }
        }
    }

    /// The pods that could not pull this image, by UID.
    pub(crate) fn pods(&self, image: &str) -> Vec<PodUid> {
        self.pods
            .get(image)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_found_by_their_images_until_they_have_none() {
        let mut failed = FailedPulls::default();
        let mut set = |uid: &str, images: &[&str]| {
            let images = images.iter().map(|image| (*image).to_owned());
            failed.set(&uid.into(), images.collect());
            let pods = failed.pods.iter();
            pods.map(|(image, pods)| format!("{image}: {}", pods.len()))
                .collect::<Vec<_>>()
        };
        assert_eq!(set("u1", &[]), [""; 0]);
        assert_eq!(set("u1", &["a", "b"]), ["a: 1", "b: 1"]);
        assert_eq!(set("u2", &["a"]), ["a: 2", "b: 1"]);
        assert_eq!(set("u1", &["b", "c"]), ["a: 1", "b: 1", "c: 1"]);
        assert_eq!(set("u1", &[]), ["a: 1"]);
        assert_eq!(failed.pods("a"), ["u2"]);
        assert_eq!(failed.pods("b"), [""; 0]);
        failed.remove(&"u2".into());
        assert!(failed.pods.is_empty() && failed.images.is_empty());
    }
}
