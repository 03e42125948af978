//! Signed callbacks that are none of ours, or none at all: each was found by an attack.

use holdfast_e2e::callback::Callback;
use holdfast_e2e::config::CALLING_PROVIDER;
use holdfast_e2e::{Client, Options, Route, Tenant, World};

fn door(name: &str) -> (World, Client) {
    let world = World::start(&Options::new(name).tenant(&Tenant::new("acme").route(Route::new("r"))));
    let client = world.client_with_key("nobody");
    (world, client)
}

fn with(body: &str) -> Callback {
    Callback::new("acme", CALLING_PROVIDER, "evt_1", "completed", "resp_1").body(body)
}

/// What an event of another kind has in it is nobody's business here: refused, its sender would send it for three days.
#[test]
fn events_of_other_kinds_are_passed_over_whatever_they_hold() {
    let (_world, client) = door("other kinds");
    for body in [
        r#"{"id":"evt_1","type":"batch.completed","data":5}"#,
        r#"{"id":"evt_1","type":"batch.completed","data":"batch_1"}"#,
        r#"{"id":"evt_1","type":"batch.completed","data":[{"id":"batch_1"}]}"#,
        r#"{"id":"evt_1","type":"batch.completed","data":{"id":7}}"#,
        r#"{"id":1,"type":"batch.completed","data":{"id":"batch_1"}}"#,
    ] {
        assert_eq!(with(body).taken(&client), ("passed_over".into(), None), "{body}");
    }
}

/// An event is an object: a list of its values is none.
#[test]
fn a_list_is_no_event() {
    let (_world, client) = door("lists");
    for body in [
        r#"["evt_1","response.completed",["resp_1"]]"#,
        r#"["evt_1","response.completed",{"id":"resp_1"}]"#,
        r#"{"id":"evt_1","type":"response.completed","data":["resp_1"]}"#,
    ] {
        with(body).send(&client).assert_problem(400, "invalid_request");
    }
}
