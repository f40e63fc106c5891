//! Records of the credentials that images were pulled with, in the kubelet's directories and format:
//! `image_manager` under the root directory, with intents in `pulling` and records in `pulled`.
//!
//! An intent is written before a pull. If the process dies during the pull, the intent shows the next
//! instance that the image, if it is present, was pulled with unknown credentials.
//!
//! A record lasts as long as its image: one that is imported, or pulled with other credentials, after
//! the image was removed would be judged by those of an earlier pull.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use jiff::Timestamp;
use polylet_cri::{RuntimeClient, v1};
use polylet_kit::state_file;
use polylet_model::image;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::super::metrics;
use crate::core::credentials::verify::{
    ImagePullCredentials, ImagePulledRecord, sha256, updated_record,
};

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const PREFIX: &str = "sha256-";
/// Suffixes of files that a crash left incomplete: of a kubelet and of this service.
const TEMPORARY: [&str; 2] = [".tmp", ".new"];

/// A record could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {path}")]
pub struct RecordError {
    operation: &'static str,
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionedRecord<'a, T> {
    kind: &'static str,
    api_version: &'static str,
    #[serde(flatten)]
    content: &'a T,
}

#[derive(Serialize, Deserialize)]
struct Intent {
    image: String,
}

/// All records of the node. Only this process writes them.
pub struct PullRecords {
    pulling: PathBuf,
    pulled: PathBuf,
    records: RefCell<BTreeMap<String, ImagePulledRecord>>,
    /// References with an intent, and the number of pulls in flight; zero for those of previous
    /// process instances, and of pulls that could not be recorded.
    intents: RefCell<BTreeMap<String, usize>>,
    /// Names of files in `pulled` that could not be read.
    unreadable_records: RefCell<BTreeSet<String>>,
    /// The same in `pulling`.
    unreadable_intents: RefCell<BTreeSet<String>>,
    writing: Mutex<()>,
}

impl PullRecords {
    /// Reads all records. Of those that cannot be read, the names are kept.
    ///
    /// # Errors
    /// The directories cannot be created or listed.
    pub fn open(root: &Path) -> Result<Self, RecordError> {
        let dir = root.join("image_manager");
        let (pulling, pulled) = (dir.join("pulling"), dir.join("pulled"));
        for dir in [&pulling, &pulled] {
            let created = fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir);
            created.map_err(failed("creating", dir))?;
        }
        let (records, unreadable_records) = read_all::<ImagePulledRecord>(&pulled)?;
        let (intents, unreadable_intents) = read_all::<Intent>(&pulling)?;
        let records = records.into_iter().map(|r| (r.image_ref.clone(), r));
        let intents = intents.into_iter().map(|intent| (intent.image, 0));
        let records = Self {
            records: RefCell::new(records.collect()),
            intents: RefCell::new(intents.collect()),
            unreadable_records: RefCell::new(unreadable_records),
            unreadable_intents: RefCell::new(unreadable_intents),
            writing: Mutex::default(),
            pulling,
            pulled,
        };
        records.count();
        Ok(records)
    }

    fn count(&self) {
        let (intents, records) = (self.intents.borrow(), self.records.borrow());
        metrics::images::set_stored(intents.len(), records.len());
    }

    /// The record of an image, by the runtime's reference.
    pub fn get(&self, image_ref: &str) -> Option<ImagePulledRecord> {
        self.records.borrow().get(image_ref).cloned()
    }

    /// Whether a pull of an image has an intent and no recorded result.
    pub fn is_pending(&self, reference: &str) -> bool {
        self.intents.borrow().contains_key(reference)
    }

    /// Whether it is unknown if this node has pulled an image, as its record or the intent to pull it cannot be
    /// read. It lasts until the image is pulled or removed.
    pub fn is_unreadable(&self, image_ref: &str, reference: &str) -> bool {
        let is_in = |files: &RefCell<BTreeSet<String>>, name: &str| {
            let files = files.borrow();
            !files.is_empty() && files.contains(&file_name(name))
        };
        is_in(&self.unreadable_records, image_ref)
            || (!self.records.borrow().contains_key(image_ref)
                && is_in(&self.unreadable_intents, reference))
    }

    /// Writes the intent to pull an image. Dropping the returned guard removes it.
    ///
    /// # Errors
    /// The intent cannot be written: the image must not be pulled.
    pub async fn record_intent(
        self: &Rc<Self>,
        reference: &str,
    ) -> Result<PendingPull, RecordError> {
        let pending = PendingPull {
            records: Rc::clone(self),
            reference: reference.to_owned(),
            keep: false,
        };
        *self
            .intents
            .borrow_mut()
            .entry(reference.to_owned())
            .or_default() += 1;
        let intent = Intent {
            image: reference.to_owned(),
        };
        self.count();
        // Several pods may pull one image at once: the first one writes for all.
        let _writing = self.writing.lock().await;
        let file = file_name(reference);
        let is_unreadable = self.unreadable_intents.borrow_mut().remove(&file);
        if is_unreadable || !self.pulling.join(file).exists() {
            self.write("ImagePullIntent", &self.pulling, reference, &intent)
                .await?;
        }
        Ok(pending)
    }

    /// Records a pull with its credentials, which may be used by pods that have them.
    ///
    /// # Errors
    /// The record cannot be written; this process instance uses it all the same.
    pub async fn record_pulled(
        &self,
        image_ref: &str,
        reference: &str,
        access: Option<ImagePullCredentials>,
    ) -> Result<(), RecordError> {
        let old = self.get(image_ref);
        let Some(new) =
            updated_record(old.as_ref(), image_ref, reference, access, Timestamp::now())
        else {
            return Ok(());
        };
        self.records.borrow_mut().insert(image_ref.to_owned(), new);
        let file = file_name(image_ref);
        self.unreadable_records.borrow_mut().remove(&file);
        self.count();
        // One after the other, each with the record at that time.
        let _writing = self.writing.lock().await;
        match self.get(image_ref) {
            Some(record) => {
                self.write("ImagePulledRecord", &self.pulled, image_ref, &record)
                    .await
            }
            None => Ok(()),
        }
    }

    async fn write<T: Serialize>(
        &self,
        kind: &'static str,
        dir: &Path,
        name: &str,
        content: &T,
    ) -> Result<(), RecordError> {
        let path = dir.join(file_name(name));
        let record = VersionedRecord {
            kind,
            api_version: API_VERSION,
            content,
        };
        let text = serde_json::to_vec(&record).map_err(std::io::Error::from);
        let to = path.clone();
        let work = tokio::task::spawn_blocking(move || state_file::write(&to, &text?));
        let done = work.await.map_err(std::io::Error::other);
        done.and_then(|done| done).map_err(failed("writing", &path))
    }

    /// Reconciles the records with the images in the runtime: images that are present and have an intent
    /// without a pull in flight get a record, and records of images that are absent are removed. Until
    /// the first time, and if the runtime does not answer, images with an intent count as pulled.
    pub async fn reconcile(&self, runtime: &RuntimeClient) {
        let started = Timestamp::now();
        // Before the list, which may lack the images of later ones.
        let stale_intents = self.stale_intents();
        let images = match runtime.list_images(None).await {
            Ok(images) => images,
            Err(error) => {
                let error = polylet_kit::report(&error);
                tracing::warn!(error, "failed to list images; not reconciling pull records");
                return;
            }
        };
        for reference in stale_intents {
            let found = images.iter().find(|image| has_name(image, &reference));
            if let Some(image) = found
                && let Err(error) = self.record_pulled(&image.id, &reference, None).await
            {
                let error = polylet_kit::report(&error);
                tracing::warn!(
                    image = reference,
                    error,
                    "failed to record image pull; keeping its intent"
                );
                continue;
            }
            self.remove_intent(&reference);
        }
        self.prune(&images, started).await;
    }

    /// Removes the records of all images but these, which were listed after `started`. Records that were
    /// written since are kept: their images may have been pulled after the list.
    async fn prune(&self, images: &[v1::Image], started: Timestamp) {
        // No record is written to a file that has just been removed.
        let _writing = self.writing.lock().await;
        let present: BTreeSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
        // A remaining file is removed by the next process instance.
        let remove = |file: &str| drop(fs::remove_file(self.pulled.join(file)));
        self.records.borrow_mut().retain(|id, record| {
            let keep = record.last_updated_time >= started || present.contains(id.as_str());
            if !keep {
                remove(&file_name(id));
            }
            keep
        });
        let mut unreadable = self.unreadable_records.borrow_mut();
        if !unreadable.is_empty() {
            let present: BTreeSet<String> = present.into_iter().map(file_name).collect();
            unreadable.retain(|file| {
                let keep = present.contains(file);
                if !keep {
                    remove(file);
                }
                keep
            });
        }
        drop(unreadable);
        self.count();
    }

    /// References with an intent and no pull in flight.
    fn stale_intents(&self) -> Vec<String> {
        let intents = self.intents.borrow();
        let stale = intents.iter().filter(|(_, pulls)| **pulls == 0);
        stale.map(|(reference, _)| reference.clone()).collect()
    }

    /// Removes an intent unless a pull is in flight.
    fn remove_intent(&self, reference: &str) {
        let mut intents = self.intents.borrow_mut();
        if intents.get(reference).is_some_and(|pulls| *pulls == 0) {
            intents.remove(reference);
            // A remaining file is reconciled by the next process instance.
            let _ = fs::remove_file(self.pulling.join(file_name(reference)));
            drop(intents);
            self.count();
        }
    }
}

/// A pull with an intent, which is removed on drop.
pub struct PendingPull {
    records: Rc<PullRecords>,
    reference: String,
    keep: bool,
}

impl PendingPull {
    /// Keeps the intent of a pull that succeeded and could not be recorded, so that the image does
    /// not count as preloaded.
    pub fn keep(mut self) {
        self.keep = true;
    }
}

impl Drop for PendingPull {
    fn drop(&mut self) {
        if let Some(pulls) = self.records.intents.borrow_mut().get_mut(&self.reference) {
            *pulls = pulls.saturating_sub(1);
        }
        if !self.keep {
            self.records.remove_intent(&self.reference);
        }
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> RecordError {
    let path = path.to_owned();
    move |source| RecordError {
        operation,
        path,
        source,
    }
}

fn file_name(name: &str) -> String {
    format!("{PREFIX}{}", sha256(name))
}

/// Whether an image in the runtime's list has a name.
fn has_name(listed: &v1::Image, reference: &str) -> bool {
    let mut names = listed.repo_tags.iter().chain(&listed.repo_digests);
    names.any(|name| image::same_image(name, reference))
}

/// The contents of all files of a directory, and the names of those that cannot be read.
fn read_all<T: DeserializeOwned>(dir: &Path) -> Result<(Vec<T>, BTreeSet<String>), RecordError> {
    let (mut all, mut unreadable) = (Vec::new(), BTreeSet::new());
    for entry in fs::read_dir(dir).map_err(failed("reading", dir))?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(PREFIX) || TEMPORARY.iter().any(|suffix| name.ends_with(suffix)) {
            continue;
        }
        let read = fs::read(entry.path()).map(|text| serde_json::from_slice(&text));
        match read {
            Ok(Ok(record)) => all.push(record),
            _ => {
                let path = entry.path();
                tracing::warn!(path = %path.display(), "unreadable image pull record; its image is verified");
                unreadable.insert(name.into_owned());
            }
        }
    }
    Ok((all, unreadable))
}

#[cfg(test)]
mod tests;
