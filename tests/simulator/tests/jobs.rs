//! Background operations: they go on without a socket, can be looked up, taken up again and stopped.

mod common;

use common::{Answer, BodyEnd, Client, Sim};
use serde_json::{Value, json};

fn send(sim: &Sim, method: &str, target: &str, body: &Value) -> Client {
    let mut client = sim.connect();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    let request = format!(
        "{method} {target} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    client.send(request.as_bytes());
    client
}

fn create(sim: &Sim, model: &str) -> Client {
    send(sim, "POST", "/v1/responses", &json!({"model": model, "input": "Hi", "stream": true, "background": true}))
}

fn expected(sim: &Sim, model: &str) -> String {
    String::from_utf8(sim.expected(model, "&api=responses&background=true")).unwrap()
}

fn id(stream: &str) -> String {
    let data = stream.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let event: Value = serde_json::from_str(data).unwrap();
    event["response"]["id"].as_str().unwrap().to_owned()
}

fn look_up(sim: &Sim, id: &str) -> Answer {
    send(sim, "GET", &format!("/v1/responses/{id}"), &Value::Null).answer()
}

fn status(sim: &Sim, id: &str) -> String {
    look_up(sim, id).json()["status"].as_str().unwrap().to_owned()
}

fn wait_for(sim: &Sim, id: &str, wanted: &str) {
    let started = std::time::Instant::now();
    while status(sim, id) != wanted {
        assert!(started.elapsed() < common::PATIENCE, "never {wanted}");
    }
}

fn resume(sim: &Sim, id: &str, query: &str) -> Answer {
    send(sim, "GET", &format!("/v1/responses/{id}?stream=true{query}"), &Value::Null).answer()
}

fn cancel(sim: &Sim, id: &str) -> Client {
    send(sim, "POST", &format!("/v1/responses/{id}/cancel"), &Value::Null)
}

#[test]
fn a_job_goes_on_without_its_socket_and_gives_the_rest() {
    let sim = Sim::start();
    let model = "gen?tokens=20&interval_ms=10&tag=goes-on";
    let whole = expected(&sim, model);
    let id = id(&whole);
    let mut client = create(&sim, model);
    let mut chunks = Vec::new();
    client.head().unwrap();
    (0..3).for_each(|_| assert!(client.chunk(&mut chunks).unwrap()));
    assert_eq!(status(&sim, &id), "in_progress");
    client.close();

    let rest = resume(&sim, &id, "&starting_after=2");
    assert_eq!((rest.status, rest.end), (200, BodyEnd::Clean));
    assert_eq!(String::from_utf8(chunks.concat()).unwrap() + &rest.text(), whole);
    assert_eq!(look_up(&sim, &id).json()["usage"]["output_tokens"], 20);
    assert_eq!(status(&sim, &id), "completed");
    // A finished one gives its events alike.
    assert_eq!(resume(&sim, &id, "&starting_after=2&include_obfuscation=false").text(), rest.text());
    assert_eq!(resume(&sim, &id, "").text(), whole);
    assert_eq!(resume(&sim, &id, "&starting_after=999").text(), "");
    let apis: Vec<_> = sim.simulator.log(Some("goes-on")).iter().map(|entry| entry["api"].clone()).collect();
    assert_eq!(apis[..3], [json!("responses"), json!("lookup"), json!("resume")]);
}

#[test]
fn a_cancel_stops_it_once() {
    let sim = Sim::start();
    let model = "gen?tokens=500&interval_ms=10&tag=stopped";
    let id = id(&expected(&sim, model));
    let mut client = create(&sim, model);
    client.head().unwrap();
    client.chunk(&mut Vec::new()).unwrap();
    for _ in 0..2 {
        let answer = cancel(&sim, &id).answer();
        assert_eq!((answer.status, answer.json()["status"].as_str()), (200, Some("cancelled")));
    }
    assert_eq!(client.chunk(&mut Vec::new()).and_then(|_| client.chunk(&mut Vec::new())), Err(BodyEnd::Fin));
    let told = resume(&sim, &id, "");
    assert_eq!(told.end, BodyEnd::Clean);
    assert!(!told.text().contains("response.completed"), "stopped without a terminal event");
}

#[test]
fn a_completed_one_stays_completed() {
    let sim = Sim::start();
    let model = "gen?tokens=2&tag=done";
    let id = id(&create(&sim, model).answer().text());
    assert_eq!(cancel(&sim, &id).answer().json()["status"], "completed");
    assert_eq!(status(&sim, &id), "completed");
}

#[test]
fn cancels_that_go_wrong() {
    let sim = Sim::start();
    let start = |keys: &str| {
        let model = format!("gen?tokens=5&endless=1&{keys}");
        let id = id(&expected(&sim, &model));
        let mut client = create(&sim, &model);
        client.head().unwrap();
        (client, id)
    };
    let (_client, slow) = start("cancel=slow&cancel_ms=60&tag=slow");
    assert_eq!(cancel(&sim, &slow).answer().json()["status"], "in_progress");
    wait_for(&sim, &slow, "cancelled");

    let (_client, lost) = start("cancel=lost&tag=lost");
    assert_eq!(cancel(&sim, &lost).head(), Err(BodyEnd::Reset));
    wait_for(&sim, &lost, "cancelled");

    let (_client, void) = start("cancel=void&tag=void");
    assert_eq!(cancel(&sim, &void).head(), Err(BodyEnd::Reset));
    assert_eq!(status(&sim, &void), "in_progress");

    let (_client, planned) = start("cancels=503:2,drop&tag=planned-cancels");
    assert_eq!(cancel(&sim, &planned).answer().status, 503);
    assert_eq!(cancel(&sim, &planned).head(), Err(BodyEnd::Reset));
    assert_eq!(status(&sim, &planned), "in_progress");
    assert_eq!(cancel(&sim, &planned).answer().json()["status"], "cancelled");

    let (_client, refused) = start("cancel=refused&tag=refused");
    assert_eq!(cancel(&sim, &refused).answer().status, 403);
    assert_eq!(status(&sim, &refused), "in_progress");
}

#[test]
fn questions_get_the_planned_answers() {
    let sim = Sim::start();
    let model = "gen?tokens=3&lookups=503:7,429:+2,drop&resumes=400,503,drop,other,cut&tag=planned";
    let id = id(&create(&sim, model).answer().text());
    let busy = look_up(&sim, &id);
    assert_eq!((busy.status, busy.header("retry-after")), (503, Some("7")));
    let dated = look_up(&sim, &id);
    assert_eq!(dated.status, 429);
    assert!(dated.header("retry-after").unwrap().ends_with(" GMT"));
    let dropped = send(&sim, "GET", &format!("/v1/responses/{id}"), &Value::Null).head();
    assert_eq!(dropped, Err(BodyEnd::Reset));
    assert_eq!(status(&sim, &id), "completed");

    assert_eq!([(); 2].map(|()| resume(&sim, &id, "").status), [400, 503]);
    let dropped = send(&sim, "GET", &format!("/v1/responses/{id}?stream=true"), &Value::Null).head();
    assert_eq!(dropped, Err(BodyEnd::Reset));
    let whole = expected(&sim, model);
    assert_ne!(resume(&sim, &id, "").text(), whole);
    assert_eq!(resume(&sim, &id, "").chunks.len(), 1);
    assert_eq!(resume(&sim, &id, "").text(), whole);
    assert_eq!(look_up(&sim, "resp_nobody").status, 404);
}

#[test]
fn it_is_queued_before_its_first_event_and_may_fail() {
    let sim = Sim::start();
    let model = "gen?tokens=3&first_ms=300&tag=queued";
    let id_of = |model: &str| id(&expected(&sim, model));
    let mut client = create(&sim, model);
    client.head().unwrap();
    assert_eq!(status(&sim, &id_of(model)), "queued");
    let failing = "gen?tokens=3&error_after=1&tag=failing";
    create(&sim, failing).answer();
    assert_eq!(status(&sim, &id_of(failing)), "failed");
    let short = "gen?tokens=3&finish=length&tag=short";
    create(&sim, short).answer();
    assert_eq!(status(&sim, &id_of(short)), "incomplete");
}
