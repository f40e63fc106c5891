//! Whom images run as. Upstream tells the runtime of that itself where a pod does not say: then a
//! group can be given alone, and the image's own group never counts.

use std::cell::RefCell;
use std::collections::BTreeMap;

use polylet_cri::v1;

/// So many are remembered: a reference is of an image's content, which never changes.
const MOST: usize = 1000;

/// Whom an image runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// A number; 0 as well where the image says nothing.
    Number(i64),
    /// A name, which the image's own files explain.
    Named(String),
}

/// What is known of images, by the runtime's reference.
#[derive(Default)]
pub(super) struct Users(RefCell<BTreeMap<String, User>>);

impl Users {
    pub(super) fn of(&self, image_ref: &str) -> Option<User> {
        self.0.borrow().get(image_ref).cloned()
    }

    pub(super) fn learn(&self, image: &v1::Image) -> User {
        let user = match (&image.uid, image.username.as_str()) {
            (Some(uid), _) => User::Number(uid.value),
            (None, "") => User::Number(0),
            (None, name) => User::Named(name.to_owned()),
        };
        let mut known = self.0.borrow_mut();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(image.id.clone(), user.clone());
        user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_says_nothing_runs_as_root() {
        let image = |id: &str, uid: Option<i64>, name: &str| v1::Image {
            id: id.to_owned(),
            uid: uid.map(|value| v1::Int64Value { value }),
            username: name.to_owned(),
            ..v1::Image::default()
        };
        let users = Users::default();
        let named = User::Named("app".to_owned());
        for (image, user) in [
            (image("a", None, ""), User::Number(0)),
            (image("b", Some(7), "app"), User::Number(7)),
            (image("c", None, "app"), named.clone()),
        ] {
            assert_eq!(users.of(&image.id), None);
            assert_eq!(users.learn(&image), user);
            assert_eq!(users.of(&image.id), Some(user));
        }
        for n in 0..MOST {
            users.learn(&image(&format!("more-{n}"), None, ""));
        }
        assert!(users.0.borrow().len() <= MOST);
    }
}
