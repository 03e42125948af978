//! Callbacks of background jobs, signed by Standard Webhooks as OpenAI signs its own: a thin payload that names the job and
//! what it came to. Sent to the one address that [`crate::Simulator::call_back_to`] names; again, every 250 ms, until a 2xx or a
//! refusal comes.
//!
//! | key of the model | meaning |
//! |---|---|
//! | `callback=at_end` | sent when the job has ended (default) |
//! | `callback=early` | sent, as completed, before the answer to the request that starts the job |
//! | `callback=forged` | sent at the end, signed with another secret |
//! | `callback=lost` | never sent |
//! | `callbacks=n` | sent n times, with the same ids (1) |
//! | `callback_ms` | so long after the end, and between two of them (0) |

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64ct::{Base64, Encoding};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::behaviour::{Behaviour, OnEnd};
use crate::jobs::Job;
use crate::log::now_ms;

const AGAIN: Duration = Duration::from_millis(250);
/// More would outlive every test.
const TRIES_MAX: usize = 200;

/// Where callbacks go.
#[derive(Debug, Clone)]
struct Target {
    address: String,
    path: String,
    secret: Vec<u8>,
}

/// The sender.
#[derive(Debug, Default)]
pub(crate) struct Callbacks(Mutex<Option<Target>>);

impl Callbacks {
    /// `url` is `http://HOST:PORT/PATH`; `secret` is `whsec_` and base64.
    pub(crate) fn aim(&self, url: &str, secret: &str) -> Option<()> {
        let (address, path) = url.strip_prefix("http://")?.split_once('/')?;
        let secret = Base64::decode_vec(secret.strip_prefix("whsec_")?).ok()?;
        let target = Target { address: address.to_owned(), path: format!("/{path}"), secret };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
        Some(())
    }

    fn target(&self) -> Option<Target> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Calls back about a job that has just been started. Waits only for what is sent before its answer.
    pub(crate) async fn of(&self, job: &Arc<Job>, behaviour: &Behaviour) {
        let Some(mut target) = self.target() else { return };
        let behaviour = behaviour.clone();
        match behaviour.callback {
            OnEnd::Lost => return,
            OnEnd::Early => return send_all(&target, job.id(), "completed", &behaviour).await,
            OnEnd::Forged => target.secret.iter_mut().for_each(|byte| *byte = !*byte),
            OnEnd::AtEnd => {}
        }
        let job = Arc::clone(job);
        tokio::spawn(async move {
            let status = job.ended().await;
            send_all(&target, job.id(), status, &behaviour).await;
        });
    }
}

async fn send_all(target: &Target, id: &str, status: &str, behaviour: &Behaviour) {
    let event = json!({
        "id": format!("evt_{id}"),
        "object": "event",
        "created_at": now_ms() / 1_000,
        "type": format!("response.{status}"),
        "data": { "id": id },
    });
    let body = event.to_string();
    for _ in 0..behaviour.callbacks {
        tokio::time::sleep(Duration::from_millis(behaviour.callback_ms)).await;
        for _ in 0..TRIES_MAX {
            match send(target, id, &body).await {
                Ok(200..=499) => break,
                _ => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}

/// The status that came.
async fn send(target: &Target, id: &str, body: &str) -> std::io::Result<u16> {
    let (sent_s, message) = (now_ms() / 1_000, format!("wh_{id}"));
    let mut mac = Hmac::<Sha256>::new_from_slice(&target.secret).map_err(std::io::Error::other)?;
    mac.update(format!("{message}.{sent_s}.{body}").as_bytes());
    let signature = Base64::encode_string(&mac.finalize().into_bytes());
    let request = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\
         webhook-id: {message}\r\nwebhook-timestamp: {sent_s}\r\nwebhook-signature: v1,{signature}\r\n\r\n{body}",
        target.path,
        target.address,
        body.len(),
    );
    let mut stream = TcpStream::connect(&target.address).await?;
    stream.write_all(request.as_bytes()).await?;
    // The status line is all that counts.
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| std::io::Error::other("no status"))
}
