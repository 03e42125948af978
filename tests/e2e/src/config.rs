//! The configuration that tests serve: one provider (the simulator), tenants with their keys, routes and limits.

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::seed::unique;

/// The pepper of client keys in tests.
pub const KEY_PEPPER: &str = "pepper-of-the-end-to-end-tests";

/// The operator's key in tests.
pub const OPERATOR_KEY: &str = "operator-key-of-the-end-to-end-tests";

/// The key that the edge shows to the simulator.
pub const PROVIDER_KEY: &str = "sk-provider-key-of-the-end-to-end-tests";

/// The provider that answers.
pub const PROVIDER: &str = "simulator";

/// A provider at a port where nobody listens.
pub const DEAD_PROVIDER: &str = "nobody";

/// The simulator again, with a secret that nobody has set.
pub const UNCONFIGURED_PROVIDER: &str = "unconfigured";

/// The simulator's Responses API, which calls back about what runs in the background.
pub const CALLING_PROVIDER: &str = "calling";

/// The same, of which nothing can be learnt but by its callbacks.
pub const ONLY_CALLING_PROVIDER: &str = "only-calling";

/// The same, with a secret that nobody has set.
pub const UNVERIFIED_PROVIDER: &str = "unverified";

/// The secret that callbacks are signed with.
pub const CALLBACK_SECRET: &str = "whsec_RdvaYFYUXuIFuEbvZHwMfYFhUf7aMYjYcmM24+Aj40c=";

/// The secret before it, which is being replaced.
pub const OLD_CALLBACK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The simulator by each of its dialects; the provider has the dialect's name.
pub const DIALECTS: [&str; 5] = ["openai-chat", "openai-responses", "anthropic-messages", "gemini", "opaque"];

/// The simulator with operations in the background: cancel, lookup, resume.
pub const BACKGROUND: &str = "background";

/// The name of the provider by hand that speaks a dialect.
#[must_use]
pub fn by_hand(dialect: &str) -> String {
    format!("by-hand-{dialect}")
}

/// The rows of the capability matrix, each as a provider: its name, whether it can cancel, whether it can be looked up.
pub const CAPABILITY_ROWS: [(&str, bool, bool); 4] = [
    ("cancel-and-status", true, true),
    ("cancel-alone", true, false),
    ("status-alone", false, true),
    ("neither", false, false),
];

/// Every path that is served, as routes match it, and the dialect of its clients.
const SERVED: [(&str, &str); 7] = [
    ("/v1/chat/completions", "openai-chat"),
    ("/v1/completions", "openai-chat"),
    ("/v1/embeddings", "openai-chat"),
    ("/v1/responses", "openai-responses"),
    ("/v1/messages", "anthropic-messages"),
    ("/v1beta/models/{model}:generateContent", "gemini"),
    ("/v1beta/models/{model}:streamGenerateContent", "gemini"),
];

/// Price of a million input tokens; odd, so that rounding shows.
pub const INPUT_MICROS_PER_MILLION: u64 = 1_234_567;

/// Price of a million output tokens; odd, so that rounding shows.
pub const OUTPUT_MICROS_PER_MILLION: u64 = 7_654_321;

/// Seed 4's price of a million input tokens, for models `sim-seed…`.
pub const SEED_INPUT_MICROS_PER_MILLION: u64 = 3_000_000;

/// Seed 4's price of a million output tokens.
pub const SEED_OUTPUT_MICROS_PER_MILLION: u64 = 15_000_000;

/// What the usage costs: rounded up once, over the sum.
#[must_use]
pub fn price_micros(input_tokens: u64, output_tokens: u64) -> u64 {
    let scaled = input_tokens * INPUT_MICROS_PER_MILLION + output_tokens * OUTPUT_MICROS_PER_MILLION;
    scaled.div_ceil(1_000_000)
}

/// A route under construction; what is not set has the product's default.
#[derive(Clone, Debug)]
pub struct Route(Value);

impl Route {
    /// A route to the simulator that matches every request, with a cap of 2,000 output tokens.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(json!({ "name": name, "provider": PROVIDER, "max_output_tokens": 2_000 }))
    }

    /// Served by another provider.
    #[must_use]
    pub fn by(self, provider: &str) -> Self {
        self.with("provider", provider)
    }

    /// Only for requests at that path.
    #[must_use]
    pub fn at(self, path: &str) -> Self {
        self.with("match", json!({ "path": path }))
    }

    /// The provider.
    ///
    /// # Panics
    /// Never: it is set here.
    #[must_use]
    pub fn provider(&self) -> &str {
        self.0["provider"].as_str().expect("a provider")
    }

    /// Sets any field.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0[field] = value.into();
        self
    }

    /// `on_disconnect: detach`.
    #[must_use]
    pub fn detach(self) -> Self {
        self.with("on_disconnect", "detach")
    }

    /// `on_disconnect: cancel`.
    #[must_use]
    pub fn cancel(self) -> Self {
        self.with("on_disconnect", "cancel")
    }

    /// `owner: edge`.
    #[must_use]
    pub fn edge_owned(self) -> Self {
        self.with("owner", "edge")
    }

    /// Only for models of that pattern.
    #[must_use]
    pub fn for_model(self, pattern: &str) -> Self {
        self.with("match", json!({ "path": "/v1/chat/completions", "model": pattern }))
    }

    /// To a provider with operations in the background, switched to it.
    #[must_use]
    pub fn background(self, provider: &str) -> Self {
        self.by(provider).at("/v1/responses").with("background", true)
    }

    /// Deadlines that let a test see recovery from a lost driver within seconds.
    #[must_use]
    pub fn quick_recovery(self) -> Self {
        self.with("lease_ms", 1_500).with("observation_ms", 200)
    }
}

/// A tenant under construction.
#[derive(Clone, Debug)]
pub struct Tenant {
    id: String,
    key: String,
    document: Value,
}

impl Tenant {
    /// A tenant with one key, a generous budget and room for 64 generations.
    #[must_use]
    pub fn new(id: &str) -> Self {
        let key = client_key(id, &unique(id));
        let document = json!({
            "grant_micros": 900_000_000_u64,
            "budget": { "limit_micros": 900_000_000_u64, "period": "month" },
            "concurrency": 64,
            "routes": [],
        });
        Self { id: id.to_owned(), key, document }
    }

    /// The key of the tenant in every fixture.
    #[must_use]
    pub fn keyed_as_stored(mut self) -> Self {
        self.key = client_key(&self.id, "fixture");
        self
    }

    /// Adds a route; the first that matches a request is used.
    ///
    /// # Panics
    /// Never: the document is built here.
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.document["routes"].as_array_mut().expect("routes are a list").push(route.0);
        self
    }

    /// Adds a route to every path that is served, each to a provider that speaks its dialect, made of the given one.
    #[must_use]
    pub fn all_paths(mut self, route: &Route) -> Self {
        for (path, provider) in SERVED {
            let named = route.clone().with("name", path.replace(['/', '{', '}', ':'], "-"));
            self = self.route(named.by(provider).at(path));
        }
        self
    }

    /// Sets any field.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.document[field] = value.into();
        self
    }

    /// The tenant's name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The secret that its clients show.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What creates the tenant.
    pub(crate) fn creation(&self) -> Value {
        let mut config = self.document.clone();
        let grant_micros = config.as_object_mut().and_then(|config| config.remove("grant_micros"));
        json!({
            "id": self.id,
            "grant_micros": grant_micros,
            "keys": [{ "digest": key_digest(&self.key), "role": "admin" }],
            "config": config,
        })
    }
}

/// A well-formed client key of a tenant, derived from any text.
#[must_use]
pub fn client_key(tenant: &str, secret_text: &str) -> String {
    let secret = &hex(&Sha256::digest(secret_text.as_bytes()))[..32];
    let stem = format!("hfk_{tenant}_{secret}");
    let checksum = hex(&Sha256::digest(stem.as_bytes()));
    format!("{stem}{}", &checksum[..8])
}

/// What is stored instead of the key.
#[must_use]
fn key_digest(key: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(KEY_PEPPER.as_bytes()).expect("any length will do");
    mac.update(key.as_bytes());
    hex(&mac.finalize().into_bytes())
}

/// The provider table.
#[must_use]
pub(crate) fn providers(simulator_origin: &str, closed_port: u16, hand_origin: Option<&str>) -> Value {
    let price = |model: &str, input: u64, output: u64| json!({ "model": model, "input_micros_per_million": input, "output_micros_per_million": output });
    let odd = |model: &str| price(model, INPUT_MICROS_PER_MILLION, OUTPUT_MICROS_PER_MILLION);
    let seeds = price("sim-seed*", SEED_INPUT_MICROS_PER_MILLION, SEED_OUTPUT_MICROS_PER_MILLION);
    let models = [seeds, odd("gen*"), odd("gpt-*"), odd("sim-*"), odd("recording/*")];
    let prices = json!({ "version": "test-1", "models": models });
    let of_dialect = |name: &str, dialect: &str, origin: &str, secret: &str| {
        json!({
            "name": name,
            "origin": origin,
            "dialect": dialect,
            "secret": secret,
            "max_tokens_field": "max_completion_tokens",
            "prices": prices.clone(),
        })
    };
    let provider = |name: &str, origin: &str, secret: &str| of_dialect(name, "openai-chat", origin, secret);
    let calling = |name: &str, secret: &str, only: bool| {
        let mut calling = of_dialect(name, "openai-responses", simulator_origin, "SIMULATOR_API_KEY");
        calling["callback_secret"] = secret.into();
        if only {
            calling["capabilities"] = json!({ "callback": true });
        }
        calling
    };
    let dialects = DIALECTS.map(|dialect| of_dialect(dialect, dialect, simulator_origin, "SIMULATOR_API_KEY"));
    let closed = format!("http://127.0.0.1:{closed_port}");
    let own = [
        provider(PROVIDER, simulator_origin, "SIMULATOR_API_KEY"),
        provider(DEAD_PROVIDER, &closed, "SIMULATOR_API_KEY"),
        provider(UNCONFIGURED_PROVIDER, simulator_origin, "NOBODY_SET_THIS"),
        calling(CALLING_PROVIDER, "CALLBACK_SECRETS", false),
        calling(ONLY_CALLING_PROVIDER, "CALLBACK_SECRETS", true),
        calling(UNVERIFIED_PROVIDER, "NOBODY_SET_THIS_EITHER", false),
    ];
    let operations = |name: &str, capabilities: Option<Value>| {
        let mut provider = of_dialect(name, "openai-responses", simulator_origin, "SIMULATOR_API_KEY");
        if let Some(capabilities) = capabilities {
            provider["capabilities"] = capabilities;
        }
        provider
    };
    let rows = CAPABILITY_ROWS
        .map(|(name, cancel, status)| operations(name, Some(json!({ "cancel": cancel, "status": status }))));
    let hand = |dialect: &str, origin: &str| {
        let mut hand = of_dialect(&by_hand(dialect), dialect, origin, "SIMULATOR_API_KEY");
        if dialect == "openai-responses" {
            hand["callback_secret"] = "CALLBACK_SECRETS".into();
        }
        hand
    };
    let hands = hand_origin.into_iter().flat_map(|origin| DIALECTS.map(|dialect| hand(dialect, origin)));
    own.into_iter().chain(dialects).chain(hands).chain([operations(BACKGROUND, None)]).chain(rows).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_rounded_up_once() {
        assert_eq!(price_micros(0, 0), 0);
        assert_eq!(price_micros(1, 0), 2, "1.23 µ$");
        assert_eq!(price_micros(3, 3), 27, "3.70 + 22.96 = 26.67 µ$, not 4 + 23");
        assert_eq!(price_micros(1_000_000, 1_000_000), 8_888_888);
    }

    #[test]
    fn keys_carry_their_checksum() {
        let key = client_key("acme", "any");
        let (stem, checksum) = key.split_at(key.len() - 8);
        assert!(stem.starts_with("hfk_acme_") && stem.len() == "hfk_acme_".len() + 32, "{key}");
        assert_eq!(checksum, &hex(&Sha256::digest(stem.as_bytes()))[..8]);
    }
}
