//! The one task that owns the accepted sets: takes in what the sources saw, publishes what follows.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use polylet_kit::CancellationToken;
use polylet_watch::Store;
use polylet_wire::podconfig::v1::Problem;
use tokio::sync::{mpsc, watch};

use crate::config::Settings;
use crate::core::Source;
use crate::core::merge::View;
use crate::keep::AtOnce;
use crate::server::{Public, Shared};
use crate::set::Set;
use crate::source::directory::Looked;
use crate::source::http::Answer;

/// Everything that can happen to this task.
#[derive(Debug)]
pub enum Input {
    /// A look at the manifest directory.
    Directory(Looked),
    /// An answer from the URL.
    Http(Answer),
}

/// The owner of all sets.
pub struct Desk {
    file: Set,
    http: Set,
    public: watch::Sender<Public>,
}

impl Desk {
    /// Starts from what was kept; sources that are not configured are empty from the start.
    pub fn open(
        settings: &Settings,
        incarnation: &str,
        file: AtOnce,
        http: AtOnce,
    ) -> (Desk, Shared) {
        let shared = Shared {
            file: Store::new(incarnation),
            http: Store::new(incarnation),
            public: watch::Sender::new(Public::default()),
        };
        let path = settings
            .directory
            .as_ref()
            .map(|d| d.path.display().to_string());
        let url = settings.http.as_ref().map(|h| h.url.clone());
        let shown = url.as_deref().map(crate::source::http::shown);
        let file = Set::open(
            Source::File,
            &settings.node,
            path.clone(),
            path,
            file,
            shared.file.clone(),
        );
        let http = Set::open(
            Source::Http,
            &settings.node,
            url,
            shown,
            http,
            shared.http.clone(),
        );
        let desk = Desk {
            file,
            http,
            public: shared.public.clone(),
        };
        desk.publish_rest(&desk.file.origins.view());
        (desk, shared)
    }

    /// Stamps of the files whose content is kept.
    pub fn stamps(&self) -> BTreeMap<String, String> {
        self.file
            .origins
            .iter()
            .map(|(origin, held)| (origin.clone(), held.stamp.clone()))
            .collect()
    }

    /// The stamp of the body that is kept.
    pub fn http_stamp(&self) -> Option<String> {
        self.http
            .origins
            .iter()
            .next()
            .map(|(_, held)| held.stamp.clone())
    }

    /// Runs until the drain.
    pub async fn run(mut self, mut inputs: mpsc::Receiver<Input>, drain: CancellationToken) {
        loop {
            let first = tokio::select! {
                () = drain.cancelled() => return,
                first = inputs.recv() => first,
            };
            let Some(first) = first else {
                // No source is configured: nothing will ever happen.
                return drain.cancelled().await;
            };
            self.take(first).await;
            // What has come meanwhile is published in one step.
            while let Ok(more) = inputs.try_recv() {
                self.take(more).await;
            }
            self.publish().await;
        }
    }

    async fn take(&mut self, input: Input) {
        match input {
            Input::Directory(looked) => self.file.take_directory(looked).await,
            Input::Http(answer) => self.http.take_http(answer).await,
        }
    }

    /// Objects come before the pods that refer to them.
    async fn publish(&mut self) {
        let (file, http) = (self.file.origins.view(), self.http.origins.view());
        let now = Timestamp::now();
        self.file.tell_problems(&file, now);
        self.http.tell_problems(&http, now);
        self.publish_rest(&file);
        self.file.publish(&file).await;
        self.http.publish(&http).await;
    }

    fn publish_rest(&self, file: &View) {
        let problems: Vec<Problem> = self
            .file
            .problems
            .iter()
            .chain(&self.http.problems)
            .cloned()
            .collect();
        let heard = self.file.stands();
        self.public.send_if_modified(|public| {
            let same = public.problems == problems
                && *public.objects == file.objects
                && public.objects_heard == heard;
            if !same {
                let objects = if *public.objects == file.objects {
                    public.objects.clone()
                } else {
                    Arc::new(file.objects.clone())
                };
                *public = Public {
                    problems,
                    objects,
                    objects_heard: heard,
                };
            }
            !same
        });
    }
}
