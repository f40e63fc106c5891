//! How many patches the deletion of a pod takes.

use super::*;

fn deleting(of: Value) -> Option<DesiredStatus> {
    let desired = desired("p", of)?;
    Some(DesiredStatus {
        deleting: true,
        ..desired
    })
}

fn ended() -> Value {
    with(exited(), &[("/phase", json!("Failed"))])
}

fn running_pod() -> Fixture {
    let mut fixture = Fixture::new();
    let queue = &mut fixture.queue;
    queue.set_api_status(&"u".into(), api("u", running()), ms(0));
    queue.set_desired(&"u".into(), desired("p", running()), ms(0));
    fixture
}

#[test]
fn the_end_of_a_container_is_patched_with_the_end_of_its_pod() {
    let mut fixture = running_pod();
    fixture
        .queue
        .set_desired(&"u".into(), deleting(exited()), ms(100));
    assert!(fixture.due(9_999).is_empty());
    let ended = DesiredStatus {
        phase: rules(false),
        ..deleting(ended()).unwrap()
    };
    fixture
        .queue
        .set_desired(&"u".into(), Some(ended), ms(9_999));
    assert_eq!(fixture.due(9_999).len(), 1, "both in one patch");
}

#[test]
fn the_end_of_a_container_is_patched_when_the_pod_does_not_end() {
    let mut fixture = running_pod();
    // The generation of the deletion alone, whose batch then waits as well.
    let generation = with(running(), &[("/observedGeneration", json!(2))]);
    fixture
        .queue
        .set_desired(&"u".into(), deleting(generation), ms(100));
    fixture
        .queue
        .set_desired(&"u".into(), deleting(exited()), ms(200));
    assert!(fixture.due(10_099).is_empty());
    assert_eq!(fixture.due(10_100).len(), 1);
    // Without a deletion nothing follows that would be worth a wait.
    let mut fixture = running_pod();
    fixture
        .queue
        .set_desired(&"u".into(), desired("p", exited()), ms(100));
    assert_eq!(fixture.due(100).len(), 1);
}
