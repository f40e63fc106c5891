//! What all origins of one source come to together.
//!
//! Each origin (a file; the one URL) holds what was last accepted from it. Only a complete reading
//! takes something away: while an origin is broken or being written, what it gave before stands.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use jiff::Timestamp;

use super::accept::Content;
use super::{Finding, ObjectItem, ObjectKey, PodItem};

/// All origins of a source by name. The order of learning does not matter to [`Origins::view`].
#[derive(Clone, Debug, Default)]
pub struct Origins {
    all: BTreeMap<String, Origin>,
}

/// What one origin holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    /// Accepted last, or before and still standing.
    pub pods: Vec<PodItem>,
    /// Likewise.
    pub objects: Vec<ObjectItem>,
    /// Of the last reading.
    pub findings: Vec<Finding>,
    /// Tells whether the origin has changed since.
    pub stamp: String,
}

/// The set of a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Accepted pods by uid, with the name of their origin.
    pub pods: BTreeMap<String, (String, PodItem)>,
    /// Accepted objects.
    pub objects: BTreeMap<ObjectKey, Arc<str>>,
    /// Findings by origin.
    pub findings: Vec<(String, Finding)>,
}

impl Origins {
    /// Starts from what a former life accepted.
    pub fn restore(&mut self, name: String, origin: Origin) {
        self.all.insert(name, origin);
    }

    /// Takes in a complete reading of an origin.
    pub fn learn(&mut self, name: &str, content: Content, stamp: String) {
        let before = self.all.remove(name).unwrap_or_default();
        let mut now = Origin {
            pods: content.pods,
            objects: content.objects,
            findings: content.findings,
            stamp,
        };
        if content.broken {
            stand(&mut now, before);
        }
        self.all.insert(name.to_owned(), now);
    }

    /// An origin that could not be read: all it gave stands.
    pub fn fail(&mut self, name: &str, message: String, stamp: String) {
        let before = self.all.remove(name).unwrap_or_default();
        let mut now = Origin {
            findings: vec![Finding::new("", message)],
            stamp,
            ..Origin::default()
        };
        stand(&mut now, before);
        self.all.insert(name.to_owned(), now);
    }

    /// An origin that is really gone.
    pub fn forget(&mut self, name: &str) {
        self.all.remove(name);
    }

    /// Forgets all origins but those that are still there.
    pub fn retain(&mut self, there: impl Fn(&str) -> bool) {
        self.all.retain(|name, _| there(name));
    }

    /// Whether an origin gave anything that a half-written reading could take away.
    pub fn gives(&self, name: &str) -> bool {
        self.all
            .get(name)
            .is_some_and(|o| !o.pods.is_empty() || !o.objects.is_empty())
    }

    /// The stamp under which an origin was read last.
    pub fn stamp(&self, name: &str) -> Option<&str> {
        self.all.get(name).map(|o| o.stamp.as_str())
    }

    /// Since when an identity is known.
    pub fn seen(&self, uid: &str) -> Option<Timestamp> {
        self.all
            .values()
            .flat_map(|o| &o.pods)
            .find(|p| p.uid == uid)
            .map(|p| p.seen)
    }

    /// Every origin, to be kept.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Origin)> {
        self.all.iter()
    }

    /// Puts the origins together, in the order of their names: the first of a name stands.
    pub fn view(&self) -> View {
        let mut view = View::default();
        let mut names: BTreeMap<(&str, &str), String> = BTreeMap::new();
        for (origin, held) in &self.all {
            view.findings
                .extend(held.findings.iter().map(|f| (origin.clone(), f.clone())));
            for pod in &held.pods {
                let here = whereabouts(origin, &pod.place);
                let refusal = match (names.get(&pod.full_name()), view.pods.get(&pod.uid)) {
                    (Some(first), _) => Some(Finding::new(
                        "metadata.name",
                        format!(
                            "{}/{} is already defined in {first}: the one in {here} is not used",
                            pod.namespace, pod.name
                        ),
                    )),
                    (None, Some((first, other))) => Some(Finding::new(
                        "metadata.uid",
                        format!(
                            "is already that of {}/{} in {}: the one in {here} is not used",
                            other.namespace,
                            other.name,
                            whereabouts(first, &other.place)
                        ),
                    )),
                    (None, None) => None,
                };
                match refusal {
                    Some(finding) => view.findings.push((origin.clone(), finding.at(&pod.place))),
                    None => {
                        names.insert(pod.full_name(), here);
                        view.pods
                            .insert(pod.uid.clone(), (origin.clone(), pod.clone()));
                    }
                }
            }
        }
        self.view_objects(&mut view);
        view
    }

    fn view_objects(&self, view: &mut View) {
        let mut first_in: BTreeMap<&ObjectKey, String> = BTreeMap::new();
        for (origin, held) in &self.all {
            for object in &held.objects {
                let here = whereabouts(origin, &object.place);
                match first_in.entry(&object.key) {
                    Entry::Vacant(slot) => {
                        slot.insert(here);
                        view.objects
                            .insert(object.key.clone(), object.manifest.clone());
                    }
                    Entry::Occupied(first) => {
                        let ObjectKey {
                            kind,
                            namespace,
                            name,
                        } = &object.key;
                        let message = format!(
                            "{kind} {namespace}/{name} is already defined in {}: the one in {here} is not used",
                            first.get()
                        );
                        view.findings.push((
                            origin.clone(),
                            Finding::new("metadata.name", message).at(&object.place),
                        ));
                    }
                }
            }
        }
    }
}

/// Keeps what was accepted before and has no successor now, and says so.
fn stand(now: &mut Origin, before: Origin) {
    let mut kept = Vec::new();
    for pod in before.pods {
        if !now.pods.iter().any(|p| p.full_name() == pod.full_name()) {
            kept.push(format!("Pod {}/{}", pod.namespace, pod.name));
            now.pods.push(pod);
        }
    }
    for object in before.objects {
        if !now.objects.iter().any(|o| o.key == object.key) {
            kept.push(format!(
                "{} {}/{}",
                object.key.kind, object.key.namespace, object.key.name
            ));
            now.objects.push(object);
        }
    }
    if !kept.is_empty() {
        let message = format!(
            "until then, what was accepted before stands: {}",
            kept.join(", ")
        );
        now.findings.push(Finding::new("", message));
    }
}

fn whereabouts(origin: &str, place: &str) -> String {
    if place.is_empty() {
        origin.to_owned()
    } else {
        format!("{origin} ({place})")
    }
}
