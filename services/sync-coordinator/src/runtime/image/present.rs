//! Images that the runtime has just reported as present: the pods of a burst ask it once, not each.
//!
//! Of an image that disappears meanwhile, the creation of the container fails, after which nothing is
//! believed here and the image is pulled at once.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use polylet_cri::v1;
use tokio::time::Instant;

/// How long a report counts. A tag may be moved to another image meanwhile.
const MAX_AGE: Duration = Duration::from_secs(10);
/// The maximum number of images.
const MAX_CACHED: NonZeroUsize = NonZeroUsize::new(100).unwrap();

/// An image's name, and the runtime handler it is for.
type ImageName = (String, String);

/// The runtime's references of present images.
pub(super) struct PresentImages(RefCell<LruCache<ImageName, (String, Instant)>>);

impl Default for PresentImages {
    fn default() -> Self {
        PresentImages(RefCell::new(LruCache::new(MAX_CACHED)))
    }
}

impl PresentImages {
    /// The reference of an image, if it was present lately.
    pub(super) fn get(&self, spec: &v1::ImageSpec) -> Option<String> {
        let mut images = self.0.borrow_mut();
        let (image_ref, reported) = images.get(&name(spec))?;
        (reported.elapsed() < MAX_AGE).then(|| image_ref.clone())
    }

    /// The runtime has reported the image as present.
    pub(super) fn insert(&self, spec: &v1::ImageSpec, image_ref: &str) {
        let reported = (image_ref.to_owned(), Instant::now());
        self.0.borrow_mut().put(name(spec), reported);
    }

    /// An image may be missing: none is believed to be present.
    pub(super) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

fn name(spec: &v1::ImageSpec) -> ImageName {
    (spec.image.clone(), spec.runtime_handler.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_report_counts_for_a_while() {
        let images = PresentImages::default();
        let image = v1::ImageSpec {
            image: "docker.io/library/app:1".to_owned(),
            ..v1::ImageSpec::default()
        };
        let other_handler = v1::ImageSpec {
            runtime_handler: "vm".to_owned(),
            ..image.clone()
        };
        assert_eq!(images.get(&image), None);
        images.insert(&image, "sha256:1");
        assert_eq!(images.get(&image).as_deref(), Some("sha256:1"));
        assert_eq!(images.get(&other_handler), None);
        tokio::time::advance(MAX_AGE).await;
        assert_eq!(images.get(&image), None);
        images.insert(&image, "sha256:2");
        images.clear();
        assert_eq!(images.get(&image), None);
    }
}
