//! Every kind of fault, with its exact place, value and reason.

use super::world::{lines, read, read_text, route, with_route};
use holdfast_core::config::{FAULTS_MAX, TRIAL_MAX_BYTES, TrialRequest};

use serde_json::{Value, json};

/// The one error of a document.
fn error(document: &Value) -> String {
    let errors = lines(&read(document).errors);
    assert_eq!(errors.len(), 1, "{document}: {errors:#?}");
    errors[0].clone()
}

/// The one warning of a document without errors.
fn warning(document: &Value) -> String {
    let reading = read(document);
    assert!(reading.errors.is_empty(), "{document}: {:#?}", reading.errors);
    let warnings = lines(&reading.warnings);
    assert_eq!(warnings.len(), 1, "{document}: {warnings:#?}");
    warnings[0].clone()
}

/// What the schema finds.
#[test]
fn faults_of_form() {
    for (members, expected) in [
        (
            json!({ "grase_ms": 1 }),
            "routes[0].grase_ms | unknown_member | 1 | there is no such member; `grace_ms` was meant?",
        ),
        (
            json!({ "grace": 1 }),
            "routes[0].grace | unknown_member | 1 | there is no such member; `grace_ms` was meant?",
        ),
        (
            json!({ "on-disconnect": 1 }),
            "routes[0][\"on-disconnect\"] | unknown_member | 1 | there is no such member; `on_disconnect` was meant?",
        ),
        (json!({ "colour": "red" }), "routes[0].colour | unknown_member | \"red\" | there is no such member"),
        (
            json!({ "match": { "modle": "m" } }),
            "routes[0].match.modle | unknown_member | \"m\" | there is no such member; `model` was meant?",
        ),
        (
            json!({ "lease_ms": "1000" }),
            "routes[0].lease_ms | wrong_type | \"1000\" | must be a whole number, is a string",
        ),
        (
            json!({ "lease_ms": 1000.5 }),
            "routes[0].lease_ms | wrong_type | 1000.5 | must be a whole number, is a number with a fraction",
        ),
        (json!({ "lease_ms": [] }), "routes[0].lease_ms | wrong_type |  | must be a whole number, is a list"),
        (
            json!({ "allow_override": "yes" }),
            "routes[0].allow_override | wrong_type | \"yes\" | must be `true` or `false`, is a string",
        ),
        (json!({ "match": "gpt-*" }), "routes[0].match | wrong_type | \"gpt-*\" | must be an object, is a string"),
        (
            json!({ "match": { "header": { "x-a": 1 } } }),
            "routes[0].match.header[\"x-a\"] | wrong_type | 1 | must be a string, is a number",
        ),
        (json!({ "owner": null }), "routes[0].owner | wrong_type | null | must be one of `object`, `edge`"),
        (json!({ "lease_ms": 999 }), "routes[0].lease_ms | out_of_range | 999 | must be from 1000 to 3600000"),
        (json!({ "grace_ms": -1 }), "routes[0].grace_ms | out_of_range | -1 | must be from 0 to 3600000"),
        (json!({ "grace_ms": 3_600_001 }), "routes[0].grace_ms | out_of_range | 3600001 | must be from 0 to 3600000"),
        (
            json!({ "retention_s": u64::MAX }),
            "routes[0].retention_s | out_of_range | 18446744073709551615 | must be from 0 to 31536000",
        ),
        (json!({ "total_ms": 0 }), "routes[0].total_ms | out_of_range | 0 | must be from 1 to 86400000"),
        (
            json!({ "re_ask_prior_per_mille": 1001 }),
            "routes[0].re_ask_prior_per_mille | out_of_range | 1001 | must be from 0 to 1000",
        ),
        (
            json!({ "escalate_above_micros": 1_u64 << 53 }),
            "routes[0].escalate_above_micros | out_of_range | 9007199254740992 | must be from 0 to 9007199254740991",
        ),
        (json!({ "concurrency": 0 }), "routes[0].concurrency | out_of_range | 0 | must be from 1 to 100000"),
        (
            json!({ "max_output_tokens": 0 }),
            "routes[0].max_output_tokens | out_of_range | 0 | must be from 1 to 1000000000",
        ),
        (json!({ "name": "" }), "routes[0].name | out_of_range | \"\" | must have from 1 to 64 characters"),
        (
            json!({ "name": "é".repeat(65) }),
            &format!("routes[0].name | out_of_range | \"{}\" | must have from 1 to 64 characters", "é".repeat(65)),
        ),
        (json!({ "owner": "egde" }), "routes[0].owner | unknown_word | \"egde\" | must be one of `object`, `edge`"),
        (
            json!({ "workload": "talk" }),
            "routes[0].workload | unknown_word | \"talk\" | must be one of `chat`, `batch`, `agentic`",
        ),
        (
            json!({ "on_expiry": { "credit": "keep" } }),
            "routes[0].on_expiry.credit | unknown_word | \"keep\" | must be one of `quarantine`, `reduce_hold`, `expire_and_watch`, `escalate`, `release`, `settle_estimate`",
        ),
        (
            json!({ "on_expiry": { "slot": "reduce_hold" } }),
            "routes[0].on_expiry.slot | unknown_word | \"reduce_hold\" | must be one of `quarantine`, `release`",
        ),
        (
            json!({ "user_minute_micros": -5 }),
            "routes[0].user_minute_micros | out_of_range | -5 | must be from 0 to 9007199254740991",
        ),
    ] {
        assert_eq!(error(&with_route(members)), expected);
    }
}

#[test]
fn faults_of_the_whole_document() {
    for (document, expected) in [
        (json!(3), "$ | wrong_type | 3 | must be an object, is a number"),
        (json!({ "route": [] }), "route | unknown_member |  | there is no such member; `routes` was meant?"),
        (json!({ "routes": {} }), "routes | wrong_type |  | must be a list, is an object"),
        (json!({ "routes": [7] }), "routes[0] | wrong_type | 7 | must be an object, is a number"),
        (json!({ "concurrency": 0 }), "concurrency | out_of_range | 0 | must be from 1 to 100000"),
        (json!({ "budget": {} }), "budget.limit_micros | missing |  | missing"),
        (
            json!({ "budget": { "limit_micros": 1, "period": "week" } }),
            "budget.period | unknown_word | \"week\" | must be one of `day`, `month`",
        ),
        (json!({ "webhook": { "events": [] } }), "webhook.url | missing |  | missing"),
        (
            json!({ "webhook": { "url": "https://a.example", "events": ["generation.gone"] } }),
            "webhook.events[0] | unknown_word | \"generation.gone\" | must be one of `generation.finished`, `generation.failed`, \
          `generation.cancelled`, `generation.expired`, `generation.late_completion`, `generation.disputed`",
        ),
        (
            json!({ "webhook": { "url": "https://a.example", "events": ["generation.failed", "generation.failed"] } }),
            "webhook.events[1] | duplicate | \"generation.failed\" | given twice",
        ),
        (
            json!({ "allowed_origins": ["https://a.example", "https://a.example"] }),
            "allowed_origins[1] | duplicate | \"https://a.example\" | given twice",
        ),
        (json!({ "default_route": "r" }), "default_route | unknown_route | \"r\" | no route is called `r`"),
    ] {
        assert_eq!(error(&document), expected);
    }
    assert_eq!(
        lines(&read_text(r#"{"concurrency":1,"concurrency":2}"#).errors),
        ["concurrency | duplicate | 1 | given twice"]
    );
    let cut = lines(&read_text("{\"routes\":").errors);
    assert_eq!(cut, ["$ | malformed |  | not JSON: EOF while parsing a value at line 1 column 10"]);
    let deep = "[".repeat(200) + &"]".repeat(200);
    assert!(lines(&read_text(&deep).errors)[0].starts_with("$ | malformed |  | not JSON: recursion limit exceeded"));
}

/// What the types cannot say.
#[test]
fn contradictions() {
    let edge = |members: Value| {
        let mut route = json!({ "owner": "edge" });
        for (name, value) in members.as_object().unwrap() {
            route[name] = value.clone();
        }
        route
    };
    let ceiling = "owner `edge` may detach here, and the platform carries its work no further than 28000 ms after the client \
                   has left: at most 28000, or `cancel` with `allow_override` `false`";
    for (members, expected) in [
        (edge(json!({ "on_disconnect": "detach", "total_ms": 28_001, "artifact": { "has_home": true } })), format!("routes[0].total_ms | contradiction | 28001 | {ceiling}")),
        (edge(json!({ "on_disconnect": "auto", "allow_override": false, "total_ms": 28_001 })), format!("routes[0].total_ms | contradiction | 28001 | {ceiling}")),
        // The preset is above it too, and it is the route's own word that is missing.
        (edge(json!({})), format!("routes[0].total_ms | contradiction |  | {ceiling}")),
        (edge(json!({ "total_ms": 28_000, "grace_ms": 1 })), "routes[0].grace_ms | contradiction | 1 | owner `edge` has no grace: its one client cannot come back to a running stream".into()),
        (json!({ "provider": "nobody" }), "routes[0].provider | unknown_provider | \"nobody\" | no provider is called `nobody`".into()),
        (json!({ "match": { "model": "o-1" } }), "routes[0].match.model | price_missing | \"o-1\" | provider `p` has no price for this model: its cost cannot be held".into()),
        (json!({ "total_ms": 1_000, "first_byte_ms": 1_001 }), "routes[0].first_byte_ms | contradiction | 1001 | can never be reached: the generation has ended after `total_ms` (1000)".into()),
        (json!({ "idle_ms": 600_001 }), "routes[0].idle_ms | contradiction | 600001 | can never be reached: the generation has ended after `total_ms` (600000)".into()),
        (json!({ "total_ms": 1_000, "expected_ms": 1_001 }), "routes[0].expected_ms | contradiction | 1001 | a normal generation would be stopped by `total_ms` (1000)".into()),
        (edge(json!({ "on_interruption": "retry", "total_ms": 28_000 })), "routes[0].on_interruption | contradiction | \"retry\" | a retry needs the request's body, which owner `edge` does not store".into()),
        (json!({ "on_interruption": "retry", "workload": "agentic" }), "routes[0].on_interruption | contradiction | \"retry\" | an agentic call is never repeated by itself: the first one may have had effects".into()),
        (json!({ "name": "a\nb" }), "routes[0].name | malformatted | \"a\\nb\" | must have no control characters".into()),
        (json!({ "match": { "model": "m", "path": "v1/x" } }), "routes[0].match.path | malformatted | \"v1/x\" | must be a path: `/`, then visible ASCII without `?` and `#`".into()),
        (json!({ "match": { "model": "m", "path": "/v1/x?y" } }), "routes[0].match.path | malformatted | \"/v1/x?y\" | must be a path: `/`, then visible ASCII without `?` and `#`".into()),
        (json!({ "match": { "model": "m", "header": { "X-A": "v" } } }), "routes[0].match.header[\"X-A\"] | malformatted | \"v\" | routes match headers whose names begin with `x-`, in lower case".into()),
        (json!({ "match": { "model": "m", "header": { "accept": "v" } } }), "routes[0].match.header.accept | malformatted | \"v\" | routes match headers whose names begin with `x-`, in lower case".into()),
        (json!({ "match": { "model": "m", "header": { "x-api-key": "v" } } }), "routes[0].match.header[\"x-api-key\"] | malformatted | \"v\" | this header carries a key: it takes no part in routing".into()),
    ] {
        assert_eq!(error(&with_route(members)), expected);
    }
    let watch = with_route(json!({ "on_expiry": { "credit": "expire_and_watch" }, "watch_ms": 0 }));
    assert_eq!(
        error(&watch),
        "routes[0].watch_ms | contradiction | 0 | `expire_and_watch` needs a time to watch for: above 0, or `release`"
    );
    let twins = json!({ "routes": [route("a", json!({})), route("b", json!({ "match": { "model": "m" } })), route("a", json!({ "match": { "path": "/v1/embeddings", "model": "m" } }))] });
    assert_eq!(error(&twins), "routes[2].name | duplicate | \"a\" | routes[0] has this name already");
    let long = with_route(json!({ "match": { "model": "m", "header": { "x-a": "v".repeat(257) } } }));
    assert!(error(&long).ends_with("…\" | a value of more than 256 bytes takes no part in routing"));
    let origin = |fault: &str| format!("not an origin as browsers write it (`https://app.example`): {fault}");
    let after = origin("its host must be one name or address, in lower case, with nothing after it");
    for (document, expected) in [
        (
            json!({ "allowed_origins": ["https://app.example", "https://app.example/"] }),
            format!("allowed_origins[1] | malformatted | \"https://app.example/\" | {after}"),
        ),
        (
            json!({ "allowed_origins": ["*"] }),
            format!("allowed_origins[0] | malformatted | \"*\" | {}", origin("it must be https://host or http://host")),
        ),
        (
            json!({ "webhook": { "url": "http://app.example/" } }),
            "webhook.url | malformatted | \"http://app.example/\" | The URL must begin with https://.".into(),
        ),
        (
            json!({ "webhook": { "url": "https://u:s@app.example/" } }),
            "webhook.url | malformatted | \"https://u:s@app.example/\" | The URL has a user name or a password.".into(),
        ),
    ] {
        assert_eq!(error(&document), expected);
    }
}

/// Design 5: "The config check warns of `detach` without a home for the result." Seed 4: where it has none, it is "the same
/// as no answer with a bill attached".
#[test]
fn warnings() {
    let no_home = "`detach` pays for answers that nobody waits for: say with `artifact.has_home` `true` that the product has a \
                   place that leads back to them";
    let unpriced = "no single price of provider `p` is for all that it takes: models without a price are refused";
    for (members, expected) in [
        (json!({ "on_disconnect": "detach" }), format!("routes[0].on_disconnect | no_home | \"detach\" | {no_home}")),
        (json!({ "on_disconnect": "detach", "artifact": { "has_home": false } }), format!("routes[0].on_disconnect | no_home | \"detach\" | {no_home}")),
        (json!({ "on_disconnect": "detach", "artifact": { "has_home": true }, "retention_s": 0 }), "routes[0].retention_s | no_home | 0 | a detached answer is deleted at its end: nobody can read it".into()),
        (json!({ "on_disconnect": "detach", "artifact": { "has_home": true }, "allow_override": false, "grace_ms": 1 }), "routes[0].grace_ms | no_effect | 1 | `detach` waits for nobody: the grace belongs to `cancel`".into()),
        (json!({ "grace_ms": 2_000, "total_ms": 1_000 }), "routes[0].grace_ms | no_effect | 2000 | never over: the generation has ended after `total_ms` (1000)".into()),
        (json!({ "watch_ms": 5 }), "routes[0].watch_ms | no_effect | 5 | only `on_expiry.credit` `expire_and_watch` watches".into()),
        (json!({ "on_expiry": { "credit": "expire_and_watch" } }), "routes[0].on_expiry.credit | no_effect | \"expire_and_watch\" | this provider can neither be asked nor calls back: there is nothing to watch".into()),
        (json!({ "match": {} }), format!("routes[0].match.model | price_missing |  | {unpriced}")),
        (json!({ "match": { "model": "g*" } }), format!("routes[0].match.model | price_missing | \"g*\" | {unpriced}")),
        (json!({ "match": { "model": "m", "workload": "batch" }, "workload": "chat" }), "routes[0].workload | no_effect | \"chat\" | the route takes another kind of work (`match.workload`) than it is set up for".into()),
    ] {
        assert_eq!(warning(&with_route(members)), expected);
    }
    for (document, expected) in [
        (json!({}), "routes | no_effect |  | there is no route: every request is refused"),
        (
            json!({ "routes": [route("a", json!({})), route("b", json!({ "match": { "model": "gpt-4*", "path": "/v1/completions" } }))] }),
            "routes[1] | no_effect |  | never taken: routes[0] stands before it and matches all that it matches",
        ),
        (
            json!({ "routes": [route("a", json!({}))], "budget": { "limit_micros": 5_095 } }),
            "budget.limit_micros | over_budget | 5095 | one request of routes[0] may hold up to 5096 micro-USD (a body of 1000 bytes, \
          all the output of one choice): it would be refused",
        ),
        (
            json!({ "routes": [route("a", json!({}))], "concurrency": 4, "detached_max": 5 }),
            "detached_max | no_effect | 5 | 5 is above `concurrency` (4), which holds besides",
        ),
        (
            json!({ "routes": [route("a", json!({}))], "allowed_origins": ["http://localhost:3000", "http://app.example"] }),
            "allowed_origins[1] | insecure | \"http://app.example\" | pages of an `http` origin can be altered on their way",
        ),
    ] {
        assert_eq!(warning(&document), expected);
    }
    let all = json!({ "routes": [route("a", json!({ "match": {} })), route("b", json!({ "match": { "path": "/v1/embeddings", "model": "m" } }))], "default_route": "b" });
    assert_eq!(
        lines(&read(&all).warnings),
        [
            format!("routes[0].match.model | price_missing |  | {unpriced}"),
            "default_route | no_effect | \"b\" | never needed: routes[0] matches every request".into(),
        ]
    );
    let fits = json!({ "routes": [route("a", json!({}))], "budget": { "limit_micros": 5_096 }, "concurrency": 4, "detached_max": 4 });
    assert_eq!(lines(&read(&fits).warnings), Vec::<String>::new());
}

/// A route whose path is not served never takes a request; one whose provider speaks another dialect refuses all.
#[test]
fn paths_and_the_dialects_of_providers() {
    let served = "/v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses, /v1/messages, /v1beta/models/{model}:generateContent, /v1beta/models/{model}:streamGenerateContent";
    let on = |path: &str, provider: &str| {
        read(&with_route(json!({ "provider": provider, "match": { "path": path, "model": "m" } })))
    };
    for (path, provider, reason) in [
        ("/v1/x", "p", format!("nothing is served at this path: no request matches. Served are {served}")),
        (
            "/v1beta/models/m:generateContent",
            "opaque",
            "requests match `/v1beta/models/{model}:generateContent`: name the model in `match.model`".into(),
        ),
        (
            "/v1/messages",
            "p",
            "every request is refused: the path is for clients of `anthropic-messages`, and provider `p` speaks `openai-chat`"
                .into(),
        ),
        (
            "/v1/chat/completions",
            "responses",
            "every request is refused: the path is for clients of `openai-chat`, and provider `responses` speaks `openai-responses`"
                .into(),
        ),
    ] {
        let reading = on(path, provider);
        assert!(reading.errors.is_empty(), "{path}: {:#?}", reading.errors);
        let line = format!("routes[0].match.path | no_effect | \"{path}\" | {reason}");
        assert_eq!(lines(&reading.warnings), [line]);
    }
    for (path, provider) in [
        ("/v1/embeddings", "p"),
        ("/v1/responses", "responses"),
        ("/v1/messages", "messages"),
        ("/v1/messages", "opaque"),
        ("/v1beta/models/{model}:streamGenerateContent", "opaque"),
    ] {
        assert_eq!(lines(&on(path, provider).warnings), Vec::<String>::new(), "{path}");
    }
}

/// Design 11, the document that it shows; what differs is what this version does not serve.
#[test]
fn the_example_of_the_design() {
    let document = json!({
        "routes": [
            { "name": "chat", "match": { "path": "/v1/chat/completions", "model": "gpt-*" }, "workload": "chat",
              "provider": "p", "on_disconnect": "cancel", "grace_ms": 3000, "max_output_tokens": 4096 },
            { "name": "quick", "match": { "path": "/v1/messages", "model": "m" }, "provider": "messages", "owner": "edge",
              "on_disconnect": "detach", "total_ms": 25000 },
            { "name": "report", "match": { "path": "/v1/responses", "model": "m", "header": { "x-workload": "report" } },
              "provider": "responses", "on_disconnect": "detach",
              "artifact": { "long": true, "has_home": true, "reproducible": false },
              "expected_ms": 90000, "total_ms": 1800000, "on_expiry": { "credit": "quarantine", "slot": "quarantine" },
              "on_interruption": "fail", "retention_s": 86400 }],
        "budget": { "limit_micros": 50000000, "period": "month" }, "concurrency": 32, "detached_max": 16,
        "allowed_origins": ["https://app.example"], "webhook": { "url": "https://app.example/hook" }
    });
    let reading = read(&document);
    assert_eq!(lines(&reading.errors), Vec::<String>::new());
    assert_eq!(
        reading.warnings.iter().map(|fault| fault.path.as_str()).collect::<Vec<_>>(),
        ["routes[1].on_disconnect"]
    );
    assert!(reading.accepted.is_some());
}

/// "A config with ten faults yields ten named errors": of form and of meaning, in one answer.
#[test]
fn ten_faults_are_ten_errors() {
    let document = json!({
        "routes": [
            { "name": "a", "provider": "p", "match": { "model": "gpt-*" }, "grase_ms": 5, "lease_ms": 5 },
            { "name": "b", "provider": "nobody", "match": { "model": "m" }, "on_disconnect": "detatch" },
            { "name": "a", "provider": "p", "match": { "model": "o-1" }, "owner": "edge", "total_ms": 30_000 },
            { "provider": "p", "match": { "model": "m" } }
        ],
        "concurrency": "many",
        "allowed_origins": ["app.example"],
    });
    let errors = read(&document).errors;
    let mut found: Vec<_> = errors.iter().map(|fault| fault.path.as_str()).collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "allowed_origins[0]",
            "concurrency",
            "routes[0].grase_ms",
            "routes[0].lease_ms",
            "routes[1].on_disconnect",
            "routes[1].provider",
            "routes[2].match.model",
            "routes[2].name",
            "routes[2].total_ms",
            "routes[3].name",
        ]
    );
}

/// Nothing is concluded from what is not known: a faulty member has no default that others could contradict.
#[test]
fn a_fault_has_no_followers() {
    for members in [
        // Each would be above the edge's ceiling if the faulty member were left out.
        json!({ "owner": "edge", "total_ms": "25000" }),
        json!({ "owner": "edge", "totl_ms": 25_000 }),
        json!({ "owner": "edge", "total": 25_000 }),
        json!({ "owner": "edge", "allow_override": "false" }),
        json!({ "owner": "edge", "allow_overide": false }),
        json!({ "owner": 1, "grace_ms": 5 }),
        json!({ "total_ms": 0, "first_byte_ms": 700_000, "idle_ms": 700_000, "expected_ms": 700_000 }),
        json!({ "provider": 7 }),
        json!({ "match": { "model": 7 }, "provider": "p" }),
        json!({ "workload": "agntic", "on_interruption": "retry" }),
        json!({ "on_expiry": { "credit": "expire_and_watch", "slot": 1 }, "watch_ms": 0 }),
    ] {
        let errors = lines(&read(&with_route(members.clone())).errors);
        assert_eq!(errors.len(), 1, "{members}: {errors:#?}");
    }
    let nameless = json!({ "routes": [{ "provider": "p", "match": { "model": "m" } }, { "provider": "p", "match": { "model": "m" } }] });
    assert_eq!(
        lines(&read(&nameless).errors),
        ["routes[0].name | missing |  | missing", "routes[1].name | missing |  | missing"]
    );
    let unknown =
        json!({ "routes": [{ "nme": "r", "provider": "p", "match": { "model": "m" } }], "default_route": "r" });
    assert_eq!(lines(&read(&unknown).errors).len(), 2, "the misspelt member and the missing one");
}

#[test]
fn no_more_faults_than_are_of_use() {
    let members: serde_json::Map<_, _> = (0..1_000).map(|n| (format!("nothing_{n}"), json!(n))).collect();
    let document = json!({ "routes": [], "allowed_origins": members });
    assert_eq!(read(&document).errors.len(), 1);
    let document = Value::Object(members);
    assert_eq!(read(&document).errors.len(), FAULTS_MAX);
}

/// A document of a megabyte is refused without holding each of its entries against every other.
#[test]
fn a_document_that_is_far_too_large_is_refused_for_its_size() {
    let origins: Vec<String> = (0..100_000).map(|n| format!("https://{n}.e")).collect();
    let errors = lines(&read(&json!({ "routes": [], "allowed_origins": origins })).errors);
    assert_eq!(
        errors.iter().filter(|error| error.starts_with("allowed_origins | out_of_range")).count(),
        1,
        "{errors:#?}"
    );
    let members: serde_json::Map<_, _> = (0..100_000).map(|n| (format!("nothing_{n}"), json!(n))).collect();
    assert_eq!(read(&Value::Object(members)).errors.len(), FAULTS_MAX);
}

/// What is tried is no longer than a request's: every pattern of every route is held against it.
#[test]
fn a_trial_request_is_bounded() {
    for (length, fits) in [(0, true), (TRIAL_MAX_BYTES, true), (TRIAL_MAX_BYTES + 1, false)] {
        let by_model = TrialRequest { model: "a".repeat(length), ..TrialRequest::default() };
        let by_path = TrialRequest { path: Some("a".repeat(length)), ..TrialRequest::default() };
        assert_eq!((by_model.check().is_ok(), by_path.check().is_ok()), (fits, fits), "{length}");
    }
}
