//! What images were pulled with, on disk at upstream's place and in its form: `image_manager`
//! under the root directory, `pulling` before a pull and `pulled` after it.
//!
//! A pull is announced before it begins. Should the process die on the way, the announcement tells
//! the next one that the image, if it is there, was pulled with a login that nobody knows.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use jiff::Timestamp;
use polylet_cri::{Runtime, v1};
use polylet_model::image;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::core::credentials::verify::{Access, Record, noted, sha256};

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const PREFIX: &str = "sha256-";

/// Records that cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("{what} {path}")]
pub struct RecordError {
    what: &'static str,
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a, T> {
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
pub struct Records {
    pulling: PathBuf,
    pulled: PathBuf,
    known: RefCell<BTreeMap<String, Record>>,
    /// Announced images, and how many pulls of each are under way; none of those that a former
    /// life of the process left.
    announced: RefCell<BTreeMap<String, usize>>,
    writing: Mutex<()>,
}

impl Records {
    /// Reads what is there; a record that cannot be read is as good as none.
    ///
    /// # Errors
    /// When the directories cannot be made.
    pub fn open(root: &Path) -> Result<Self, RecordError> {
        let dir = root.join("image_manager");
        let (pulling, pulled) = (dir.join("pulling"), dir.join("pulled"));
        for dir in [&pulling, &pulled] {
            let made = fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir);
            made.map_err(failed("making", dir))?;
        }
        let known = read_all::<Record>(&pulled)?.into_iter();
        let announced = read_all::<Intent>(&pulling)?.into_iter();
        Ok(Self {
            known: RefCell::new(known.map(|r| (r.image_ref.clone(), r)).collect()),
            announced: RefCell::new(announced.map(|intent| (intent.image, 0)).collect()),
            writing: Mutex::default(),
            pulling,
            pulled,
        })
    }

    /// The record of an image, by the runtime's reference.
    pub fn of(&self, image_ref: &str) -> Option<Record> {
        self.known.borrow().get(image_ref).cloned()
    }

    /// Whether a pull of an image was announced and has not ended well or badly.
    pub fn is_announced(&self, reference: &str) -> bool {
        self.announced.borrow().contains_key(reference)
    }

    /// Announces a pull. What is given back withdraws that when it is dropped.
    ///
    /// # Errors
    /// When that cannot be written: nothing is pulled then.
    pub async fn announce(self: &Rc<Self>, reference: &str) -> Result<Announced, RecordError> {
        let announced = Announced {
            records: Rc::clone(self),
            reference: reference.to_owned(),
            keep: false,
        };
        *self
            .announced
            .borrow_mut()
            .entry(reference.to_owned())
            .or_default() += 1;
        let intent = Intent {
            image: reference.to_owned(),
        };
        // Several pods may want one image at once: the first writes for all of them.
        let _turn = self.writing.lock().await;
        if !self.pulling.join(file_name(reference)).exists() {
            self.write("ImagePullIntent", &self.pulling, reference, &intent)
                .await?;
        }
        Ok(announced)
    }

    /// Notes who may use an image from now on.
    ///
    /// # Errors
    /// When that cannot be written; this life of the process knows it all the same.
    pub async fn note(
        &self,
        image_ref: &str,
        reference: &str,
        access: Option<Access>,
    ) -> Result<(), RecordError> {
        let old = self.of(image_ref);
        let Some(new) = noted(old.as_ref(), image_ref, reference, access, Timestamp::now()) else {
            return Ok(());
        };
        self.known.borrow_mut().insert(image_ref.to_owned(), new);
        // One after the other, each with what is known when its turn comes.
        let _turn = self.writing.lock().await;
        match self.of(image_ref) {
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
        let written = Written {
            kind,
            api_version: API_VERSION,
            content,
        };
        let text = serde_json::to_vec(&written).map_err(std::io::Error::from);
        let to = path.clone();
        let work = tokio::task::spawn_blocking(move || replace(&to, &text?));
        let done = work.await.map_err(std::io::Error::other);
        done.and_then(|done| done).map_err(failed("writing", &path))
    }

    /// Settles what a former life left: images that it had announced and that are there get a
    /// record, and records of images that are gone go. Tried once in a life; until then, and where
    /// the runtime does not answer, announced images count as pulled.
    pub async fn settle(&self, runtime: &Runtime) {
        let began = Timestamp::now();
        let images = match runtime.list_images(None).await {
            Ok(images) => images,
            Err(error) => {
                let error = polylet_kit::report(&error);
                tracing::warn!(error, "records of pulled images stay as they are");
                return;
            }
        };
        for reference in self.left_over() {
            let found = images.iter().find(|image| has(image, &reference));
            if let Some(image) = found
                && let Err(error) = self.note(&image.id, &reference, None).await
            {
                let error = polylet_kit::report(&error);
                tracing::warn!(image = reference, error, "the pull stays announced");
                continue;
            }
            self.withdraw(&reference);
        }
        let mut known = self.known.borrow_mut();
        known.retain(|id, record| {
            let there = record.last_updated_time >= began || images.iter().any(|i| i.id == *id);
            if !there {
                // One that stays is found gone by the next life.
                let _ = fs::remove_file(self.pulled.join(file_name(id)));
            }
            there
        });
    }

    /// What a former life announced.
    fn left_over(&self) -> Vec<String> {
        let announced = self.announced.borrow();
        let left = announced.iter().filter(|(_, pulls)| **pulls == 0);
        left.map(|(reference, _)| reference.clone()).collect()
    }

    /// Takes an announcement away unless a pull is under way.
    fn withdraw(&self, reference: &str) {
        let mut announced = self.announced.borrow_mut();
        if announced.get(reference).is_some_and(|pulls| *pulls == 0) {
            announced.remove(reference);
            // One that stays is settled by the next life.
            let _ = fs::remove_file(self.pulling.join(file_name(reference)));
        }
    }
}

/// A pull that was announced.
pub struct Announced {
    records: Rc<Records>,
    reference: String,
    keep: bool,
}

impl Announced {
    /// The pull has ended well and cannot be noted: it stays announced, so that the image is not
    /// taken for one that nobody pulled.
    pub fn keep(mut self) {
        self.keep = true;
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        if let Some(pulls) = self.records.announced.borrow_mut().get_mut(&self.reference) {
            *pulls = pulls.saturating_sub(1);
        }
        if !self.keep {
            self.records.withdraw(&self.reference);
        }
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> RecordError {
    let path = path.to_owned();
    move |source| RecordError { what, path, source }
}

fn file_name(name: &str) -> String {
    format!("{PREFIX}{}", sha256(name))
}

/// Whether an image of the runtime's list answers to a reference.
fn has(listed: &v1::Image, reference: &str) -> bool {
    let mut names = listed.repo_tags.iter().chain(&listed.repo_digests);
    names.any(|name| image::same(name, reference))
}

fn read_all<T: DeserializeOwned>(dir: &Path) -> Result<Vec<T>, RecordError> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed("reading", dir))?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(PREFIX) || name.ends_with(".tmp") {
            continue;
        }
        let read = fs::read(entry.path()).map(|text| serde_json::from_slice(&text));
        match read {
            Ok(Ok(record)) => all.push(record),
            _ => tracing::warn!(path = %entry.path().display(), "not a record of a pull"),
        }
    }
    Ok(all)
}

/// Written aside, synced, renamed, and the directory synced.
fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let aside = path.with_extension("tmp");
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&aside)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    path.parent()
        .map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::credentials::verify::{Known, known};

    #[tokio::test]
    async fn records_outlive_the_process() {
        let root = tempfile::tempdir().unwrap();
        let records = Rc::new(Records::open(root.path()).unwrap());
        let announced = records.announce("r.example/a:1").await.unwrap();
        assert!(records.is_announced("r.example/a:1"));
        // The process dies here, in the middle of a pull.
        let next = Rc::new(Records::open(root.path()).unwrap());
        assert!(next.is_announced("r.example/a:1"));
        drop(announced);
        assert!(!records.is_announced("r.example/a:1"));
        assert!(
            !Records::open(root.path())
                .unwrap()
                .is_announced("r.example/a:1")
        );

        let access = Some(Access::of(None));
        records.note("id", "r.example/a:1", access).await.unwrap();
        let next = Records::open(root.path()).unwrap();
        assert_eq!(known(next.of("id").as_ref(), "r.example/a:1"), Known::Open);
    }

    #[tokio::test]
    async fn two_pulls_are_announced_until_both_have_ended() {
        let root = tempfile::tempdir().unwrap();
        let records = Rc::new(Records::open(root.path()).unwrap());
        let one = records.announce("r/a").await.unwrap();
        let two = records.announce("r/a").await.unwrap();
        drop(one);
        assert!(records.is_announced("r/a"));
        drop(two);
        assert!(!records.is_announced("r/a"));
        records.announce("r/a").await.unwrap().keep();
        assert!(Records::open(root.path()).unwrap().is_announced("r/a"));
    }

    #[tokio::test]
    async fn many_may_announce_one_image_at_once() {
        let root = tempfile::tempdir().unwrap();
        let records = Rc::new(Records::open(root.path()).unwrap());
        let file = records.pulling.join(file_name("r.example/a:1"));
        for _ in 0..20 {
            let all = (0..8).map(|_| records.announce("r.example/a:1"));
            let all = futures::future::join_all(all).await;
            assert!(all.iter().all(Result::is_ok));
            assert!(file.is_file());
            drop(all);
            assert!(!file.exists());
        }
    }

    #[test]
    fn what_is_no_record_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("image_manager/pulled");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("sha256-0"), "{").unwrap();
        fs::write(dir.join("other"), "{}").unwrap();
        assert!(Records::open(root.path()).unwrap().of("").is_none());
    }
}
