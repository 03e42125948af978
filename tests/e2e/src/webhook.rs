//! A tenant's webhook: where it points, what came, and whether it is signed.

use std::io::Write;
use std::process::{Command, Stdio};

use base64ct::{Base64, Encoding};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::client::Client;
use crate::world::repository;
use crate::{Simulator, wait_for};

/// A webhook receiver of a simulator, by its name.
#[derive(Clone, Debug)]
pub struct Hook {
    name: String,
    url: String,
}

impl Hook {
    /// A receiver with its answers; see the simulator.
    #[must_use]
    pub fn new(simulator: &Simulator, name: &str, answers: &str) -> Self {
        let url = format!("{}/__hook/{name}?answers={answers}", simulator.origin());
        Self { name: name.to_owned(), url }
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What came, oldest first.
    #[must_use]
    pub fn messages(&self, simulator: &Simulator) -> Vec<Message> {
        simulator.hooks(&self.name).into_iter().map(Message).collect()
    }

    /// What came, once it is so many.
    pub fn wait_for(&self, simulator: &Simulator, count: usize) -> Vec<Message> {
        wait_for("messages at the webhook", || {
            let messages = self.messages(simulator);
            if messages.len() >= count { Ok(messages) } else { Err(format!("{} of {count}", messages.len())) }
        })
    }

    /// What a redirect of this receiver led to.
    #[must_use]
    pub fn followed(&self, simulator: &Simulator) -> usize {
        simulator.hooks(&format!("{}-followed", self.name)).len()
    }
}

/// One message as it came.
#[derive(Clone, Debug)]
pub struct Message(Value);

impl Message {
    /// A header; its name in lower case.
    ///
    /// # Panics
    /// When it has none of that name.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.0["headers"][name].as_str().unwrap_or_else(|| panic!("no {name} in {}", self.0))
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.header("webhook-id")
    }

    /// The body, as it came.
    ///
    /// # Panics
    /// Never: the simulator notes text.
    #[must_use]
    pub fn body(&self) -> &str {
        self.0["body"].as_str().expect("a body")
    }

    /// The body, read.
    ///
    /// # Panics
    /// When it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(self.body()).unwrap_or_else(|error| panic!("{error}: {}", self.body()))
    }

    /// When it came, in milliseconds since 1970.
    #[must_use]
    pub fn received_at_ms(&self) -> u64 {
        self.0["received_at_ms"].as_u64().expect("a time")
    }

    /// The signatures that it lists.
    #[must_use]
    pub fn signatures(&self) -> Vec<&str> {
        self.header("webhook-signature").split(' ').collect()
    }

    /// Whether one of its signatures is by this secret.
    ///
    /// # Panics
    /// When the secret is none.
    #[must_use]
    pub fn is_signed_by(&self, secret: &str) -> bool {
        let key = Base64::decode_vec(secret.trim_start_matches("whsec_")).expect("base64");
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("any length will do");
        mac.update(format!("{}.{}.{}", self.id(), self.header("webhook-timestamp"), self.body()).as_bytes());
        let expected = format!("v1,{}", Base64::encode_string(&mac.finalize().into_bytes()));
        self.signatures().contains(&expected.as_str())
    }
}

/// Which of the messages the verifier of the official SDK accepts under the secret.
///
/// # Panics
/// When it does not run.
#[must_use]
pub fn accepted_by_sdk(messages: &[Message], secret: &str) -> Vec<bool> {
    let list: Vec<Value> = messages
        .iter()
        .map(|message| json!({ "secret": secret, "headers": message.0["headers"], "body": message.body() }))
        .collect();
    let mut command = Command::new("node");
    command.arg(repository().join("tests/sdk/webhook.mjs")).current_dir(repository());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("node runs");
    let mut stdin = child.stdin.take().expect("its input");
    stdin.write_all(Value::from(list).to_string().as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "webhook.mjs ended with {}", output.status);
    serde_json::from_slice(&output.stdout).expect("a list")
}

/// What a tenant's administrator does with its webhook.
impl Client {
    /// Sends a JSON document.
    #[must_use]
    pub fn send_json(&self, method: &'static str, target: &str, document: &Value) -> crate::Reply {
        self.call(&self.authorized(method, target).json(document))
    }

    /// Points the webhook of the tenant's configuration to a URL.
    #[must_use]
    pub fn put_webhook(&self, webhook: &Value) -> crate::Reply {
        let mut config = self.get("/v1/config").expect(200).json()["config"].take();
        match webhook {
            Value::Null => drop(config.as_object_mut().and_then(|config| config.remove("webhook"))),
            webhook => config["webhook"] = webhook.clone(),
        }
        self.send_json("PUT", "/v1/config", &config)
    }

    /// Makes a new signing secret; the old one signs besides for so long.
    ///
    /// # Panics
    /// When the answer has none.
    #[must_use]
    pub fn rotate_webhook_secret(&self, query: &str) -> String {
        let rotated = self.post(&format!("/v1/webhook/rotate{query}")).expect(200).json();
        rotated["signing_secret"].as_str().unwrap_or_else(|| panic!("no secret in {rotated}")).to_owned()
    }

    /// Points the webhook to a receiver, with a secret of its own.
    pub fn use_hook(&self, hook: &Hook) -> String {
        let _stored = self.put_webhook(&json!({ "url": hook.url() })).expect(200);
        self.rotate_webhook_secret("")
    }

    /// The deliveries in a state.
    ///
    /// # Panics
    /// When the answer is not a list.
    #[must_use]
    pub fn deliveries(&self, state: &str) -> Vec<Value> {
        let list = self.get(&format!("/v1/webhook/deliveries?state={state}")).expect(200).json();
        list["data"].as_array().unwrap_or_else(|| panic!("no data in {list}")).clone()
    }

    /// The deliveries in a state, once there are so many.
    pub fn wait_for_deliveries(&self, state: &str, count: usize) -> Vec<Value> {
        wait_for(&format!("{count} {state} deliveries"), || {
            let found = self.deliveries(state);
            if found.len() == count {
                Ok(found)
            } else {
                Err(format!("{:?}", self.get("/v1/webhook/deliveries").text()))
            }
        })
    }
}
