//! A tenant's view of the product over HTTP.

use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::{HeaderMap, Request as WebRequest};

use crate::http::{Exchange, Request, Socketing};
use crate::{Chat, price_micros, wait_for};

const CALL_PATIENCE: Duration = Duration::from_secs(30);

/// A whole answer of an ordinary HTTP client.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The header, if it is there and is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The header, which must be there.
    ///
    /// # Panics
    /// When it is not.
    #[must_use]
    pub fn required(&self, name: &str) -> &str {
        self.header(name).unwrap_or_else(|| panic!("no header {name} in {self:?}"))
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let read = serde_json::from_slice(&self.body);
        read.unwrap_or_else(|error| panic!("status {}, not JSON ({error}): {}", self.status, self.text()))
    }

    /// Asserts the status and hands the reply on.
    ///
    /// # Panics
    /// When it differs.
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// Asserts an error in the envelope of the OpenAI API with that status and code.
    ///
    /// # Panics
    /// When it is something else.
    pub fn assert_envelope(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{}", self.text());
        let error = &self.json()["error"];
        assert_eq!(error["code"], code, "{error}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
        assert!(error["type"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
        assert_eq!(error.get("param"), Some(&Value::Null), "{error}");
    }

    /// Asserts a `problem+json` error with that status and code.
    ///
    /// # Panics
    /// When it is something else.
    pub fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        assert_eq!(problem["type"], format!("https://holdfast.dev/problems/{code}"), "{problem}");
        assert!(problem["retryable"].is_boolean(), "{problem}");
        for text in ["title", "detail"] {
            assert!(problem[text].as_str().is_some_and(|text| !text.is_empty()), "{problem}");
        }
    }
}

/// A tenant's balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// Credit ever granted, in micro-USD.
    pub granted: u64,
    /// Sum of the open holds, in micro-USD.
    pub held: u64,
    /// Spent, in micro-USD.
    pub spent: u64,
    /// What new holds may use, in micro-USD.
    pub available: u64,
    /// Concurrency slots taken.
    pub slots: u64,
    /// The open holds: generation and micro-USD.
    pub holds: Vec<(String, u64)>,
}

impl Balance {
    fn read(document: &Value) -> Self {
        let number = |name: &str| document[name].as_u64().unwrap_or_else(|| panic!("no {name} in balance {document}"));
        let holds = document["holds"].as_array().unwrap_or_else(|| panic!("no holds in {document}"));
        let hold = |hold: &Value| {
            let generation = hold["generation_id"].as_str().expect("a hold names its generation");
            (generation.to_owned(), hold["hold_micros"].as_u64().expect("a hold has an amount"))
        };
        let balance = Self {
            granted: number("granted_micros"),
            held: number("held_micros"),
            spent: number("spent_micros"),
            available: number("available_micros"),
            slots: number("slots_in_use"),
            holds: holds.iter().map(hold).collect(),
        };
        assert_eq!(document["check"]["consistent"], true, "{document}");
        balance.assert_adds_up();
        balance
    }

    fn assert_adds_up(&self) {
        assert_eq!(self.granted, self.held + self.spent + self.available, "{self:?}");
        assert_eq!(self.held, self.holds.iter().map(|(_, micros)| micros).sum::<u64>(), "{self:?}");
        assert_eq!(self.slots, self.holds.len() as u64, "{self:?}");
    }
}

/// A client with a key, at a port. It stays valid over a restart of the server.
#[derive(Clone, Debug)]
pub struct Client {
    port: u16,
    key: String,
    agent: Agent,
}

impl Client {
    /// A client of the server at a loopback port.
    #[must_use]
    pub fn new(port: u16, key: &str) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_idle_connections(0)
            .timeout_global(Some(CALL_PATIENCE))
            .build();
        Self { port, key: key.to_owned(), agent: Agent::new_with_config(config) }
    }

    /// The port it talks to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The key it shows.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Sends a chat request on a raw connection; the answer is not awaited.
    #[must_use]
    pub fn open(&self, chat: &Chat) -> Exchange {
        Exchange::send(self.port, &chat.request(&self.key))
    }

    /// [`Client::open`] at a server that may be gone.
    ///
    /// # Errors
    /// The server did not take the request.
    pub fn try_open(&self, chat: &Chat) -> std::io::Result<Exchange> {
        Exchange::try_send(self.port, &chat.request(&self.key), Socketing::default())
    }

    /// [`Client::open`] with options of the socket.
    #[must_use]
    pub fn open_with(&self, chat: &Chat, socketing: Socketing) -> Exchange {
        Exchange::send_with(self.port, &chat.request(&self.key), socketing)
    }

    /// Sends a chat request on a raw connection, waits for the head of a good answer, and returns the generation's id
    /// with it.
    ///
    /// # Panics
    /// When the answer is not a 200 that names its generation.
    #[must_use]
    pub fn begin(&self, chat: &Chat) -> (Exchange, String) {
        let mut exchange = self.open(chat);
        let head = exchange.head();
        assert_eq!(head.status, 200, "{head:?}");
        let id = head.required("x-generation-id").to_owned();
        assert_id(&id, "gen_");
        assert_id(head.required("x-reservation-id"), "res_");
        assert_eq!(head.required("location"), format!("/v1/generations/{id}"));
        (exchange, id)
    }

    /// Sends a chat request and reads the answer whole, with an ordinary HTTP client.
    pub fn chat(&self, chat: &Chat) -> Reply {
        self.call(&chat.request(&self.key))
    }

    /// `GET` with the key.
    #[must_use]
    pub fn get(&self, target: &str) -> Reply {
        self.call(&self.authorized("GET", target))
    }

    /// `POST` without body, with the key.
    #[must_use]
    pub fn post(&self, target: &str) -> Reply {
        self.call(&self.authorized("POST", target))
    }

    /// Any request, as it is, with an ordinary HTTP client.
    ///
    /// # Panics
    /// When no whole answer comes.
    #[must_use]
    pub fn call(&self, request: &Request) -> Reply {
        let uri = format!("http://127.0.0.1:{}{}", self.port, request.target);
        let mut builder = WebRequest::builder().method(request.method).uri(&uri);
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        let answer = match request.method {
            "GET" => self.agent.run(builder.body(()).expect("a request")),
            _ => self.agent.run(builder.body(request.body.as_slice()).expect("a request")),
        };
        let (head, mut body) = answer.unwrap_or_else(|error| panic!("{uri}: {error}")).into_parts();
        let bytes = body.with_config().limit(u64::MAX).read_to_vec();
        let body = bytes.unwrap_or_else(|error| panic!("{uri}: status {}, body: {error}", head.status));
        Reply { status: head.status.as_u16(), headers: head.headers, body }
    }

    /// The state of a generation.
    #[must_use]
    pub fn generation(&self, id: &str) -> Value {
        self.get(&format!("/v1/generations/{id}")).expect(200).json()
    }

    /// The generations of an idempotency key.
    ///
    /// # Panics
    /// When the answer is not a list.
    #[must_use]
    pub fn by_idempotency_key(&self, key: &str) -> Vec<Value> {
        let list = self.get(&format!("/v1/generations?idempotency_key={key}")).expect(200).json();
        assert_eq!(list["object"], "list", "{list}");
        list["data"].as_array().unwrap_or_else(|| panic!("no data in {list}")).clone()
    }

    /// The only generation of an idempotency key, once it is known.
    #[must_use]
    pub fn id_by_idempotency_key(&self, key: &str) -> String {
        wait_for("the generation of an idempotency key", || match self.by_idempotency_key(key).as_slice() {
            [only] => Ok(only["id"].as_str().expect("a generation has an id").to_owned()),
            other => Err(format!("{other:?}")),
        })
    }

    /// The tenant's balance; it is checked to add up.
    #[must_use]
    pub fn balance(&self) -> Balance {
        Balance::read(&self.get("/v1/balance").expect(200).json())
    }

    /// Waits until nothing is held, without a word to any generation.
    pub fn wait_until_nothing_is_held(&self) -> Balance {
        wait_for("no open hold", || {
            let balance = self.balance();
            let free = balance.slots == 0 && balance.held == 0;
            if free { Ok(balance) } else { Err(format!("{balance:?}")) }
        })
    }

    /// Waits until the generation is at an end and the tenant has acknowledged its settlement.
    pub fn wait_until_settled(&self, id: &str) -> Value {
        wait_for("a settled generation", || {
            let generation = self.generation(id);
            let settled = generation["settled"] == true && generation["log"]["closed"] == true;
            if settled { Ok(generation) } else { Err(generation.to_string()) }
        })
    }

    /// All bytes of a generation from an offset, as far as its end.
    ///
    /// # Panics
    /// When the answer is not a 200 that ends cleanly.
    #[must_use]
    pub fn read_all_from(&self, id: &str, offset: usize) -> Vec<u8> {
        let mut exchange = self.read_from(id, offset);
        let head = exchange.head();
        assert_eq!(head.status, 200, "{head:?}");
        exchange.finish().clean()
    }

    /// The stored answer of a generation that is at its end.
    #[must_use]
    pub fn result(&self, id: &str) -> Reply {
        self.get(&format!("/v1/generations/{id}/result"))
    }

    /// Reads a generation's bytes from an offset, on a raw connection.
    #[must_use]
    pub fn read_from(&self, id: &str, offset: usize) -> Exchange {
        let target = format!("/v1/generations/{id}/stream?offset={offset}");
        Exchange::send(self.port, &self.authorized("GET", &target))
    }

    /// Reads a generation as an `EventSource` does, on a raw connection.
    #[must_use]
    pub fn read_events(&self, id: &str, last_event_id: Option<&str>) -> Exchange {
        let target = format!("/v1/generations/{id}/stream");
        let mut request = self.authorized("GET", &target).header("Accept", "text/event-stream");
        if let Some(last) = last_event_id {
            request = request.header("Last-Event-ID", last);
        }
        Exchange::send(self.port, &request)
    }

    /// Asks for a generation's end.
    pub fn cancel(&self, id: &str) -> Reply {
        self.post(&format!("/v1/generations/{id}/cancel"))
    }

    /// Asks for a generation's end, at a server that may be gone.
    pub fn try_cancel(&self, id: &str) {
        let request = self.authorized("POST", &format!("/v1/generations/{id}/cancel"));
        if let Ok(mut exchange) = Exchange::try_send(self.port, &request, Socketing::default()) {
            // Whether an answer comes does not matter here: the generation's record tells.
            let _ = exchange.try_head();
        }
    }

    /// A request with the key.
    #[must_use]
    pub fn authorized(&self, method: &'static str, target: &str) -> Request {
        Request::new(method, target).header("Authorization", &format!("Bearer {}", self.key))
    }
}

fn assert_id(id: &str, prefix: &str) {
    let digits = id.strip_prefix(prefix).unwrap_or_else(|| panic!("{id} does not begin with {prefix}"));
    let hex = digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    assert!(hex && digits.len() == 32, "{id} is not {prefix} and 32 hex digits");
}

/// Asserts that the generation is completed and settled at exactly that usage.
///
/// # Panics
/// When it is not.
pub fn assert_completed(generation: &Value, input_tokens: u64, output_tokens: u64) {
    assert_eq!(generation["lifecycle"], "completed", "{generation}");
    assert_eq!(generation["upstream"]["state"], "completed", "{generation}");
    assert_eq!(generation["settlement"], "committed", "{generation}");
    assert_eq!(generation["usage"]["kind"], "exact", "{generation}");
    assert_eq!(generation["usage"]["input_tokens"], input_tokens, "{generation}");
    assert_eq!(generation["usage"]["output_tokens"], output_tokens, "{generation}");
    let cost = &generation["cost"];
    assert_eq!(cost["settled_micros"], price_micros(input_tokens, output_tokens), "{generation}");
    assert_eq!(cost["estimated"], false, "{generation}");
    assert!(cost["hold_micros"].as_u64() >= cost["settled_micros"].as_u64(), "{generation}");
}

/// Asserts that the generation's hold is settled by an estimate, and returns the micro-USD: more than nothing, not
/// above the hold, and flagged.
///
/// # Panics
/// When it is settled in another way.
pub fn assert_estimated(generation: &Value) -> u64 {
    assert_eq!(generation["settlement"], "committed", "{generation}");
    assert_eq!(generation["usage"]["kind"], "at_least", "{generation}");
    let cost = &generation["cost"];
    assert_eq!(cost["estimated"], true, "{generation}");
    let micros = |name: &str| cost[name].as_u64().unwrap_or_else(|| panic!("no {name} in {generation}"));
    let (settled, hold) = (micros("settled_micros"), micros("hold_micros"));
    assert!(0 < settled && settled <= hold, "{generation}");
    settled
}
