//! Bytes received through the edge equal the bytes that the provider sent, whatever way it cuts its writes; and what
//! is stored equals what was received.

use std::io::Read;

use holdfast_e2e::recordings::{Recording, chat_recordings, folder};
use holdfast_e2e::{Chat, Client, Options, Route, Seed, Tenant, World, assert_bytes, assert_completed, unique};

fn world(name: &str) -> (World, Client) {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

/// Streams to the end and returns the generation's id with the bytes.
fn stream(client: &Client, chat: &Chat) -> (String, Vec<u8>) {
    let (mut exchange, id) = client.begin(chat);
    assert!(exchange.head().required("content-type").starts_with("text/event-stream"));
    (id, exchange.finish().clean())
}

#[test]
fn every_recorded_stream_passes_unchanged() {
    let Some(folder) = folder() else { return };
    let (world, client) = world("recorded streams");
    let mut seed = Seed::named("recorded streams");
    for recording in chat_recordings(&folder) {
        let length = recording.bytes.len();
        let mut cuts = vec![String::new(), "split=1000".to_owned(), "coalesce=7".to_owned()];
        for _ in 0..3 {
            let offsets = seed.distinct(12, 1, length).iter().map(usize::to_string).collect::<Vec<_>>();
            cuts.push(format!("cut={}&gap_ms=2", offsets.join(",")));
        }
        for cut in cuts {
            assert_passes(&world, &client, &recording, &cut);
        }
    }
    client.wait_until_nothing_is_held();
}

fn assert_passes(world: &World, client: &Client, recording: &Recording, cut: &str) {
    let tag = unique("recorded");
    let chat = Chat::stream(&format!("{}?{cut}", recording.model)).tag(&tag).with_usage();
    let what = chat.model().to_owned();
    let (id, got) = stream(client, &chat);
    assert_bytes!(got, &recording.bytes, "{what}");
    assert_bytes!(world.simulator.sent_for(&chat), &recording.bytes, "the simulator replays the file");
    let settled = client.wait_until_settled(&id);
    assert_completed(&settled, recording.input_tokens, recording.output_tokens);
    assert_eq!(settled["upstream"]["operation_id"], recording.operation_id, "{settled}");
    assert_eq!(settled["upstream"]["finish_reason"], recording.finish, "{settled}");
    assert_eq!(settled["log"]["length"], recording.bytes.len(), "{settled}");
    assert_bytes!(client.read_all_from(&id, 0), &recording.bytes, "the stored stream");
    assert_bytes!(client.result(&id).expect(200).body, &recording.bytes, "the stored result");
}

#[test]
fn built_in_recordings_pass_unchanged_whatever_ends_their_lines() {
    let (world, client) = world("built-in recordings");
    let usages = [("crlf", (11, 14)), ("multibyte", (21, 24)), ("tool-calls", (88, 37))];
    for (name, (input_tokens, output_tokens)) in usages {
        for cut in ["", "split=1", "split=2", "coalesce=1000"] {
            let plain = Chat::stream(&format!("recording/{name}?{cut}"));
            for chat in [plain.clone().with_usage(), plain] {
                let (id, got) = stream(&client, &chat);
                assert_bytes!(got, world.simulator.expected(&chat), "{}", chat.model());
                assert_completed(&client.wait_until_settled(&id), input_tokens, output_tokens);
                assert_bytes!(client.read_all_from(&id, 0), got, "the stored stream");
            }
        }
    }
}

#[test]
fn recorded_streams_lose_only_the_usage_chunk_that_the_client_did_not_ask_for() {
    let Some(folder) = folder() else { return };
    let (world, client) = world("recorded streams without usage");
    for recording in chat_recordings(&folder) {
        let chat = Chat::stream(&recording.model).tag(&unique("unasked"));
        let expected = world.simulator.expected(&chat);
        let (id, got) = stream(&client, &chat);
        assert_bytes!(got, expected, "{}", chat.model());
        let settled = client.wait_until_settled(&id);
        assert_completed(&settled, recording.input_tokens, recording.output_tokens);
        assert_eq!(settled["log"]["length"], expected.len(), "{settled}");
        assert_bytes!(client.read_all_from(&id, 0), &expected, "the stored stream");
    }
}

#[test]
fn every_cut_point_of_a_small_stream() {
    let (world, client) = world("every cut point");
    let model = |cut: usize| format!("gen?tokens=1&cut={cut}&gap_ms=1");
    let length = world.simulator.expected(&Chat::stream(&model(500)).with_usage()).len();
    let workers = 4;
    let one_worker = |first: usize| {
        for cut in (first..length).step_by(workers) {
            let asks = cut % 2 == 0;
            let plain = Chat::stream(&model(cut));
            let chat = if asks { plain.with_usage() } else { plain };
            let (_, got) = stream(&client, &chat);
            assert_bytes!(got, &world.simulator.expected(&chat), "{}", chat.model());
        }
    };
    std::thread::scope(|scope| {
        for first in 1..=workers {
            scope.spawn(move || one_worker(first));
        }
    });
    client.wait_until_nothing_is_held();
}

#[test]
fn one_byte_per_write_with_characters_of_several_bytes() {
    let (world, client) = world("one byte per write");
    for cut in ["split=1", "split=2", "split=3&gap_ms=1", "split=7"] {
        let chat = Chat::stream(&format!("gen?tokens=12&text=multibyte&{cut}")).tag(&unique("bytewise"));
        let (id, got) = stream(&client, &chat);
        assert_bytes!(got, &world.simulator.expected(&chat), "{}", chat.model());
        assert_completed(&client.wait_until_settled(&id), 12, 12);
        assert_bytes!(client.read_all_from(&id, 0), &got, "the stored stream");
    }
}

#[test]
fn the_usage_chunk_is_asked_for_and_shown_only_to_who_asked() {
    let (world, client) = world("usage chunk");
    for asks in [false, true] {
        let tag = unique("usage");
        let plain = Chat::stream("gen?tokens=9&prompt_tokens=33").tag(&tag);
        let chat = if asks { plain.with_usage() } else { plain };
        let (id, got) = stream(&client, &chat);
        assert_bytes!(got, &world.simulator.expected(&chat), "{}", chat.model());
        assert_eq!(String::from_utf8_lossy(&got).contains("prompt_tokens"), asks);
        assert_eq!(world.simulator.only(&tag).body()["stream_options"]["include_usage"], true);
        assert_completed(&client.wait_until_settled(&id), 33, 9);
    }
}

#[test]
fn an_answer_in_one_piece_passes_unchanged() {
    let (world, client) = world("one piece");
    for model in ["gen?tokens=14&prompt_tokens=8", "gen?tokens=14&prompt_tokens=8&text=multibyte&split=1"] {
        let tag = unique("complete");
        let chat = Chat::complete(model).tag(&tag);
        let reply = client.chat(&chat).expect(200);
        assert_bytes!(reply.body, &world.simulator.expected(&chat), "{}", chat.model());
        assert_eq!(reply.required("content-type"), "application/json");
        let id = reply.required("x-generation-id");
        let settled = client.wait_until_settled(id);
        assert_completed(&settled, 8, 14);
        assert_bytes!(client.read_all_from(id, 0), &reply.body, "the stored stream");
        let result = client.result(id).expect(200);
        assert_bytes!(result.body, &reply.body, "the stored result");
        assert_eq!(result.required("content-type"), "application/json");
        assert_eq!(world.simulator.only(&tag).body().get("stream_options"), None);
    }
}

#[test]
fn a_compressed_answer_that_nobody_asked_for_is_read_all_the_same() {
    let (world, client) = world("gzip");
    let tag = unique("gzip");
    let chat = Chat::stream("gen?tokens=11&gzip=1").tag(&tag).with_usage();
    let (mut exchange, id) = client.begin(&chat);
    assert_eq!(exchange.head().header("content-encoding"), None);
    let mut plain = Vec::new();
    let sent = world.simulator.sent_for(&chat);
    flate2::read::GzDecoder::new(sent.as_slice()).read_to_end(&mut plain).expect("gzip");
    assert_bytes!(exchange.finish().clean(), &plain, "{}", chat.model());
    assert_completed(&client.wait_until_settled(&id), 12, 11);
    assert_eq!(world.simulator.only(&tag).headers()["accept-encoding"], "identity");
}
