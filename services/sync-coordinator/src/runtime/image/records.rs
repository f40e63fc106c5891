//! Records of the credentials that images were pulled with, in the kubelet's directories and format:
//! `image_manager` under the root directory, with intents in `pulling` and records in `pulled`.
//!
//! An intent is written before a pull. If the process dies during the pull, the intent shows the next
//! instance that the image, if it is present, was pulled with unknown credentials.

use std::cell::RefCell;
use std::collections::BTreeMap;
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
    /// process instances.
    intents: RefCell<BTreeMap<String, usize>>,
    writing: Mutex<()>,
}

impl PullRecords {
    /// Reads all records; corrupt ones are ignored.
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
        let records = read_all::<ImagePulledRecord>(&pulled)?.into_iter();
        let intents = read_all::<Intent>(&pulling)?.into_iter();
        let records = Self {
            records: RefCell::new(records.map(|r| (r.image_ref.clone(), r)).collect()),
            intents: RefCell::new(intents.map(|intent| (intent.image, 0)).collect()),
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
        if !self.pulling.join(file_name(reference)).exists() {
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

    /// Reconciles the records of previous process instances: images with an intent that are present
    /// get a record, and records of images that are absent are removed. Done once per process
    /// instance; until then, and if the runtime does not answer, images with an intent count as
    /// pulled.
    pub async fn reconcile(&self, runtime: &RuntimeClient) {
        let started = Timestamp::now();
        let images = match runtime.list_images(None).await {
            Ok(images) => images,
            Err(error) => {
                let error = polylet_kit::report(&error);
                tracing::warn!(error, "failed to list images; not reconciling pull records");
                return;
            }
        };
        for reference in self.stale_intents() {
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
        let mut records = self.records.borrow_mut();
        records.retain(|id, record| {
            let present = record.last_updated_time >= started || images.iter().any(|i| i.id == *id);
            if !present {
                // A remaining file is removed by the next process instance.
                let _ = fs::remove_file(self.pulled.join(file_name(id)));
            }
            present
        });
        drop(records);
        self.count();
    }

    /// References with an intent of a previous process instance.
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

fn read_all<T: DeserializeOwned>(dir: &Path) -> Result<Vec<T>, RecordError> {
    let mut all = Vec::new();
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
                tracing::warn!(path = %path.display(), "corrupt image pull record; ignoring it");
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::credentials::verify::{ImageAccess, image_access};

    #[tokio::test]
    async fn records_are_restored() {
        let root = tempfile::tempdir().unwrap();
        let records = Rc::new(PullRecords::open(root.path()).unwrap());
        let pending = records.record_intent("r.example/a:1").await.unwrap();
        assert!(records.is_pending("r.example/a:1"));
        // The process dies here, during a pull.
        let next = Rc::new(PullRecords::open(root.path()).unwrap());
        assert!(next.is_pending("r.example/a:1"));
        drop(pending);
        assert!(!records.is_pending("r.example/a:1"));
        assert!(
            !PullRecords::open(root.path())
                .unwrap()
                .is_pending("r.example/a:1")
        );

        let access = Some(ImagePullCredentials::from_pull(None));
        records
            .record_pulled("id", "r.example/a:1", access)
            .await
            .unwrap();
        let next = PullRecords::open(root.path()).unwrap();
        assert_eq!(
            image_access(next.get("id").as_ref(), "r.example/a:1"),
            ImageAccess::AnyPod
        );
    }

    #[tokio::test]
    async fn intent_stays_until_all_pulls_have_finished() {
        let root = tempfile::tempdir().unwrap();
        let records = Rc::new(PullRecords::open(root.path()).unwrap());
        let one = records.record_intent("r/a").await.unwrap();
        let two = records.record_intent("r/a").await.unwrap();
        drop(one);
        assert!(records.is_pending("r/a"));
        drop(two);
        assert!(!records.is_pending("r/a"));
        records.record_intent("r/a").await.unwrap().keep();
        assert!(PullRecords::open(root.path()).unwrap().is_pending("r/a"));
    }

    #[tokio::test]
    async fn concurrent_pulls_share_an_intent() {
        let root = tempfile::tempdir().unwrap();
        let records = Rc::new(PullRecords::open(root.path()).unwrap());
        let file = records.pulling.join(file_name("r.example/a:1"));
        for _ in 0..20 {
            let all = (0..8).map(|_| records.record_intent("r.example/a:1"));
            let all = futures::future::join_all(all).await;
            assert!(all.iter().all(Result::is_ok));
            assert!(file.is_file());
            drop(all);
            assert!(!file.exists());
        }
    }

    #[test]
    fn corrupt_records_are_ignored() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("image_manager/pulled");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("sha256-0"), "{").unwrap();
        fs::write(dir.join("other"), "{}").unwrap();
        assert!(PullRecords::open(root.path()).unwrap().get("").is_none());
    }
}
