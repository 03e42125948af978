//! Streams recorded from real providers, of every dialect, through the edge: the client gets the bytes that the provider
//! sends, the usage is the one that its own terminal events report, and it is settled once.

use holdfast_e2e::recordings::{Recording, all_recordings, folder};
use holdfast_e2e::{Api, Chat, Client, Options, Route, Seed, Tenant, World, assert_bytes, assert_completed, unique};

/// The cap is above what any recording has, so that no hold is too small for it.
fn world(name: &str, route: &Route) -> (World, Client) {
    let tenant = Tenant::new("acme").all_paths(&route.clone().with("max_output_tokens", 100_000));
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

/// How the simulator cuts its writes: as it likes, in pieces of one size, and at random.
fn cuts(seed: &mut Seed, length: usize) -> [String; 3] {
    let offsets = seed.distinct(12, 1, length).iter().map(usize::to_string).collect::<Vec<_>>();
    [String::new(), "split=1000".to_owned(), format!("cut={}&gap_ms=1", offsets.join(","))]
}

fn play_all(name: &str, route: &Route) {
    let Some(folder) = folder() else { return };
    let (world, client) = world(name, route);
    let mut seed = Seed::named(name);
    for recording in all_recordings(&folder) {
        for cut in cuts(&mut seed, recording.bytes.len()) {
            plays(&world, &client, &recording, &cut);
        }
    }
    let balance = client.wait_until_nothing_is_held();
    let check = client.get("/v1/ledger/check").expect(200).json();
    assert_eq!(check["consistent"], true, "{check}");
    assert!(balance.spent > 0, "{balance:?}");
}

fn plays(world: &World, client: &Client, recording: &Recording, cut: &str) {
    let tag = unique("recorded");
    let chat = Chat::of(recording.api, &format!("{}?{cut}", recording.model), true)
        .tag(&tag)
        .header("anthropic-version", "2023-06-01");
    let chat = match recording.api {
        Api::Chat => chat.with_usage(),
        Api::Messages => chat.field("max_tokens", 100_000),
        _ => chat,
    };
    let what = chat.model().to_owned();
    let direct = world.simulator.direct().chat(&chat).expect(200).body;
    assert_bytes!(direct, &recording.bytes, "{what}: the simulator replays the file");
    let (mut exchange, id) = client.begin(&chat);
    assert!(exchange.head().required("content-type").starts_with("text/event-stream"));
    let got = exchange.finish().clean();
    assert_bytes!(got, &recording.bytes, "{what}");
    let settled = client.wait_until_settled(&id);
    assert_eq!(settled["upstream"]["operation_id"], recording.operation_id, "{settled}");
    assert_eq!(settled["upstream"]["finish_reason"], recording.finish, "{settled}");
    if recording.fails {
        assert_eq!(settled["lifecycle"], "failed", "{settled}");
        assert_eq!(settled["reason"], "provider_error_in_band", "{settled}");
    } else {
        assert_completed(&settled, recording.input_tokens, recording.output_tokens);
    }
    assert_bytes!(client.read_all_from(&id, 0), &recording.bytes, "{what}: the stored stream");
    let ledger = client.get(&format!("/v1/ledger?generation={id}")).expect(200).json();
    let kinds: Vec<_> =
        ledger["data"].as_array().expect("postings").iter().map(|entry| entry["kind"].clone()).collect();
    assert_eq!(kinds, ["hold", "settle"], "{what}: {ledger}");
}

#[test]
fn every_recorded_stream_of_every_dialect() {
    play_all("every recorded stream", &Route::new("any").detach());
}

#[test]
fn every_recorded_stream_through_the_edges_own_driver() {
    play_all("every recorded stream, edge", &Route::new("any").cancel().edge_owned().with("total_ms", 25_000));
}

/// The few streams that come with the simulator: hand-made, with what real ones rarely have.
#[test]
fn the_built_in_streams_of_every_dialect() {
    let (world, client) = world("built-in streams of every dialect", &Route::new("any").detach());
    for (api, name, finish, input_tokens, output_tokens) in [
        (Api::Chat, "tool-calls", "tool_calls", 88, 37),
        (Api::Responses, "responses-reasoning", "response.completed", 75, 88),
        (Api::Messages, "messages-tools", "tool_use", 165, 64),
        (Api::Gemini, "gemini-thoughts", "STOP", 14, 65),
    ] {
        for cut in ["", "split=1", "split=7", "coalesce=100"] {
            let chat = Chat::of(api, &format!("recording/{name}?{cut}"), true).tag(&unique("built-in"));
            let chat = if api == Api::Chat { chat.with_usage() } else { chat };
            let (mut exchange, id) = client.begin(&chat);
            assert_bytes!(exchange.finish().clean(), world.simulator.sent_for(&chat), "{}", chat.model());
            let settled = client.wait_until_settled(&id);
            assert_eq!(settled["upstream"]["finish_reason"], finish, "{settled}");
            assert_completed(&settled, input_tokens, output_tokens);
        }
    }
    client.wait_until_nothing_is_held();
}
