//! A provider that calls back by hand: what is signed, with which secret, and when.

use base64ct::{Base64, Encoding};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;

use crate::client::{Client, Reply};
use crate::config::CALLBACK_SECRET;
use crate::http::Request;
use crate::now_ms;

/// A callback under construction: signed as it should be, of now.
#[derive(Clone, Debug)]
pub struct Callback {
    target: String,
    message_id: String,
    secrets: Vec<String>,
    sent_s: u64,
    body: String,
}

impl Callback {
    /// That an operation has ended: `completed`, `failed`, `incomplete` or `cancelled`.
    #[must_use]
    pub fn new(tenant: &str, provider: &str, event_id: &str, how: &str, operation_id: &str) -> Self {
        let body = json!({
            "id": event_id,
            "object": "event",
            "created_at": 1_750_861_210,
            "type": format!("response.{how}"),
            "data": { "id": operation_id },
        });
        Self {
            target: format!("/v1/callbacks/{tenant}/{provider}"),
            message_id: format!("wh_{event_id}"),
            secrets: vec![CALLBACK_SECRET.to_owned()],
            sent_s: now_ms() / 1_000,
            body: body.to_string(),
        }
    }

    /// Signed with these secrets, in this order.
    #[must_use]
    pub fn signed_with(mut self, secrets: &[&str]) -> Self {
        self.secrets = secrets.iter().map(|secret| (*secret).to_owned()).collect();
        self
    }

    /// As if it had been sent then.
    #[must_use]
    pub fn sent_at(mut self, sent_s: u64) -> Self {
        self.sent_s = sent_s;
        self
    }

    /// Any body.
    #[must_use]
    pub fn body(mut self, body: &str) -> Self {
        body.clone_into(&mut self.body);
        self
    }

    /// The request on the wire.
    ///
    /// # Panics
    /// When a secret is malformed.
    #[must_use]
    pub fn request(&self) -> Request {
        let signature = |secret: &String| {
            let key = Base64::decode_vec(secret.strip_prefix("whsec_").expect("its prefix")).expect("base64");
            let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("any length will do");
            mac.update(format!("{}.{}.{}", self.message_id, self.sent_s, self.body).as_bytes());
            format!("v1,{}", Base64::encode_string(&mac.finalize().into_bytes()))
        };
        let signatures: Vec<String> = self.secrets.iter().map(signature).collect();
        let mut request = Request::new("POST", &self.target)
            .header("content-type", "application/json")
            .header("webhook-id", &self.message_id)
            .header("webhook-timestamp", &self.sent_s.to_string());
        if !signatures.is_empty() {
            request = request.header("webhook-signature", &signatures.join(" "));
        }
        request.body = self.body.clone().into_bytes();
        request
    }

    /// Sends it.
    pub fn send(&self, client: &Client) -> Reply {
        client.call(&self.request())
    }

    /// Sends it, and returns what became of it: `handled`, `parked` or `passed_over`, with the disposition.
    ///
    /// # Panics
    /// When it was not taken.
    pub fn taken(&self, client: &Client) -> (String, Option<String>) {
        let receipt = self.send(client).expect(200).json();
        let word = |name: &str| receipt[name].as_str().map(str::to_owned);
        (word("status").unwrap_or_else(|| panic!("{receipt}")), word("disposition"))
    }
}
