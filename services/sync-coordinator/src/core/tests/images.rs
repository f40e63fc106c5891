//! What a container's waiting reason says of its images.

use polylet_model::constants::reason;

use super::super::learn::Trouble;
use super::super::step::{Step, StepKey};
use super::super::world::{World, simple};

/// Fails the first pull so, carries everything else out, and gives the note of container `a` at
/// once and three seconds later.
fn told(trouble: &Trouble) -> [(String, String); 2] {
    let mut world = World::new(simple("Always", &["a"]));
    loop {
        let steps = world.begin();
        if steps.is_empty() {
            break;
        }
        for step in steps {
            match step {
                Step::PullImage { .. } => world.fail(&step, trouble.clone()),
                other => world.finish(&other),
            }
        }
    }
    let note = |world: &World| {
        let notes = world.plan().notes;
        let note = notes.into_iter().find(|note| note.container == "a");
        note.map(|note| (note.reason, note.message))
            .unwrap_or_default()
    };
    let first = note(&world);
    world.pass(3);
    [first, note(&world)]
}

#[test]
fn what_the_registry_said_is_told_and_then_the_back_off() {
    let backs_off = reason::IMAGE_PULL_BACK_OFF;
    for (said, image, first, message) in [
        (
            reason::ERR_IMAGE_PULL,
            "",
            reason::ERR_IMAGE_PULL,
            "Back-off pulling image \"img-a:1\": ErrImagePull: why",
        ),
        (
            reason::REGISTRY_UNAVAILABLE,
            "img-a:1",
            reason::REGISTRY_UNAVAILABLE,
            "Back-off pulling image \"img-a:1\": RegistryUnavailable: why",
        ),
        (
            reason::SIGNATURE_VALIDATION_FAILED,
            // A volume's image.
            "vol:1",
            reason::SIGNATURE_VALIDATION_FAILED,
            "Back-off pulling image \"vol:1\": SignatureValidationFailed: why",
        ),
    ] {
        let trouble = Trouble {
            reason: said.into(),
            message: "why".into(),
            image: image.into(),
            ..Trouble::default()
        };
        let [now, later] = told(&trouble);
        assert_eq!(now, (first.to_owned(), "why".to_owned()));
        assert_eq!(later, (backs_off.to_owned(), message.to_owned()));
    }
}

#[test]
fn what_no_registry_said_stays_as_it_is() {
    for said in [
        reason::ERR_IMAGE_NEVER_PULL,
        reason::IMAGE_INSPECT_ERROR,
        reason::INVALID_IMAGE_NAME,
    ] {
        let trouble = Trouble {
            reason: said.into(),
            message: "why".into(),
            ..Trouble::default()
        };
        let same = (said.to_owned(), "why".to_owned());
        assert_eq!(told(&trouble), [same.clone(), same]);
    }
}

#[test]
fn an_image_that_went_away_before_the_start_is_asked_for_again() {
    let mut world = World::new(simple("Always", &["a"]));
    let mut missed = false;
    loop {
        let steps = world.begin();
        if steps.is_empty() {
            break;
        }
        for step in steps {
            match &step {
                Step::CreateContainer { .. } if !missed => {
                    missed = true;
                    let trouble = Trouble {
                        image_missing: true,
                        ..Trouble::default()
                    };
                    world.fail(&step, trouble);
                    assert!(world.planned().contains(&StepKey::Pull("a".into())));
                }
                _ => world.finish(&step),
            }
        }
    }
    assert_eq!(world.all_running(), ["a"]);
}
