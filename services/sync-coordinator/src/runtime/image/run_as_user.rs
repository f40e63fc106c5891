//! Users that images run as. For a pod without `runAsUser` the kubelet passes the image's user to the
//! runtime: a group can then be set alone, and the image's own group has no effect.

use std::cell::RefCell;
use std::num::NonZeroUsize;

use lru::LruCache;
use polylet_cri::v1;

use super::super::security::ImageUser;

/// The maximum number of cached users. A reference identifies an image's content, which never
/// changes.
const MAX_CACHED: NonZeroUsize = NonZeroUsize::new(1000).unwrap();

/// Users of images by the runtime's reference.
pub(super) struct ImageUsers(RefCell<LruCache<String, ImageUser>>);

impl Default for ImageUsers {
    fn default() -> Self {
        ImageUsers(RefCell::new(LruCache::new(MAX_CACHED)))
    }
}

impl ImageUsers {
    pub(super) fn get(&self, image_ref: &str) -> Option<ImageUser> {
        self.0.borrow_mut().get(image_ref).cloned()
    }

    pub(super) fn insert(&self, image: &v1::Image) -> ImageUser {
        let user = match (&image.uid, image.username.as_str()) {
            (Some(uid), _) => ImageUser::Uid(uid.value),
            (None, "") => ImageUser::Uid(0),
            (None, name) => ImageUser::Name(name.to_owned()),
        };
        self.0.borrow_mut().put(image.id.clone(), user.clone());
        user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_without_user_runs_as_root() {
        let image = |id: &str, uid: Option<i64>, name: &str| v1::Image {
            id: id.to_owned(),
            uid: uid.map(|value| v1::Int64Value { value }),
            username: name.to_owned(),
            ..v1::Image::default()
        };
        let users = ImageUsers::default();
        let named = ImageUser::Name("app".to_owned());
        for (image, user) in [
            (image("a", None, ""), ImageUser::Uid(0)),
            (image("b", Some(7), "app"), ImageUser::Uid(7)),
            (image("c", None, "app"), named.clone()),
        ] {
            assert_eq!(users.get(&image.id), None);
            assert_eq!(users.insert(&image), user);
            assert_eq!(users.get(&image.id), Some(user));
        }
        for n in 0..MAX_CACHED.get() {
            users.insert(&image(&format!("more-{n}"), None, ""));
        }
        assert!(users.0.borrow().len() <= MAX_CACHED.get());
    }
}
