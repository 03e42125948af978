//! The one client of a generation that the edge drives: bytes wait here until it takes them, up to a bound.

use holdfast_core::relay::is_event_boundary;
use holdfast_core::reservation::ResponseHead;
use holdfast_core::sse::BLANK_LINE;
use holdfast_objects::notify::Notify;
use holdfast_objects::pipe::{PipeWriter, pipe};
use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use worker::js_sys::Uint8Array;
use worker::{Context, Headers, Request, Response, ResponseBody, Result};

/// A client that lets more than so many bytes wait is dropped when more arrive; it reads on from the log. What waits is
/// bounded by this and one delivery: that may be an answer in one piece, which is no fault of the client's.
const WAITING_MAX_BYTES: usize = 1 << 20;

/// See [`is_event_boundary`].
const TAIL_BYTES: usize = 4;

/// What the client gets and how far it is.
#[derive(Default)]
pub(crate) struct Client {
    head: RefCell<Option<ResponseHead>>,
    waiting: RefCell<Vec<u8>>,
    /// The last bytes that were delivered, as many as tell whether an event ends there.
    tail: RefCell<Vec<u8>>,
    taken_bytes: Cell<u64>,
    /// The end of the answer is known: nothing is delivered any more.
    closed: Cell<bool>,
    gone: Cell<bool>,
    finished: Cell<bool>,
    changed: Notify,
}

impl Client {
    /// The client of a request. The platform's signal tells when it leaves; a failed write tells too.
    pub(crate) fn new(request: &Request) -> Rc<Self> {
        let client = Rc::new(Self::default());
        let listener = client.clone();
        let on_abort = Closure::once_into_js(AssertUnwindSafe(move || listener.leave()));
        let signal = request.inner().signal();
        if signal.add_event_listener_with_callback("abort", on_abort.unchecked_ref()).is_err() {
            worker::console_error!("the request has no signal");
        }
        client
    }

    /// The answer's head; the first one stands.
    pub(crate) fn respond(&self, head: ResponseHead) {
        self.head.borrow_mut().get_or_insert(head);
        self.changed.notify();
    }

    /// Bytes for the client; more will come. Never waits. A client that has let too many wait already counts as gone.
    pub(crate) fn deliver(&self, bytes: Vec<u8>) {
        let more_comes = !bytes.is_empty() && !self.closed.get();
        if more_comes && self.waiting.borrow().len() > WAITING_MAX_BYTES {
            return self.leave();
        }
        self.add(bytes);
    }

    fn add(&self, bytes: Vec<u8>) {
        if self.gone.get() || self.closed.get() {
            return;
        }
        self.remember_tail(&bytes);
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            *waiting = bytes;
        } else {
            waiting.extend(bytes);
        }
        drop(waiting);
        self.changed.notify();
    }

    fn remember_tail(&self, bytes: &[u8]) {
        let mut tail = self.tail.borrow_mut();
        tail.extend(bytes.iter().skip(bytes.len().saturating_sub(TAIL_BYTES)));
        let surplus = tail.len().saturating_sub(TAIL_BYTES);
        tail.drain(..surplus);
    }

    /// The last bytes; the answer is whole. However many wait, the client may take its time for them: there will not be
    /// more.
    pub(crate) fn close(&self, last_bytes: Vec<u8>) {
        self.add(last_bytes);
        self.closed.set(true);
        self.changed.notify();
    }

    /// The driver has ended. An answer that it left open breaks off: a stream that has begun gets the event `error`,
    /// because its mere end could be taken for success; one that has not begun never does.
    pub(crate) fn finish(&self, error: Vec<u8>) {
        if !self.closed.get() {
            let begun = self.head.borrow().is_some();
            let inside_event = !is_event_boundary(&self.tail.borrow());
            let mut last_bytes = if begun && inside_event { BLANK_LINE.to_vec() } else { Vec::new() };
            last_bytes.extend(error);
            self.close(if begun { last_bytes } else { Vec::new() });
        }
        self.finished.set(true);
        self.changed.notify();
    }

    fn leave(&self) {
        if !self.gone.replace(true) {
            self.waiting.borrow_mut().clear();
            self.changed.notify();
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.get()
    }

    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken_bytes.get()
    }

    /// Waits until the client has left (true) or the driver has ended (false).
    pub(crate) async fn left_before_the_end(&self) -> bool {
        loop {
            let version = self.changed.version();
            if self.finished.get() || self.closed.get() {
                return false;
            }
            if self.gone.get() {
                return true;
            }
            self.changed.changed_since(version).await;
        }
    }

    async fn begun(&self) -> Option<ResponseHead> {
        loop {
            let version = self.changed.version();
            if let Some(head) = self.head.borrow().clone() {
                return Some(head);
            }
            if self.closed.get() || self.gone.get() {
                return None;
            }
            self.changed.changed_since(version).await;
        }
    }

    /// Writes what waits until the answer has ended.
    async fn write_all(&self, writer: &PipeWriter) {
        loop {
            let version = self.changed.version();
            let bytes = self.waiting.take();
            if self.gone.get() {
                return writer.abort();
            }
            if !bytes.is_empty() {
                if writer.write(Uint8Array::from(bytes.as_slice())).await.is_err() {
                    self.leave();
                    return;
                }
                self.taken_bytes.set(self.taken_bytes.get().saturating_add(bytes.len() as u64));
                continue;
            }
            if self.closed.get() {
                return writer.close().await;
            }
            self.changed.changed_since(version).await;
        }
    }
}

/// The client's answer, once it has begun; `None` when it broke off before, or the client left.
///
/// # Errors
/// When the platform refuses a header.
pub(crate) async fn serve(context: &Context, client: &Rc<Client>) -> Result<Option<Response>> {
    let Some(head) = client.begun().await else { return Ok(None) };
    let headers = Headers::new();
    for (name, value) in &head.headers {
        headers.set(name, value)?;
    }
    let (writer, body) = pipe()?;
    let client = client.clone();
    context.wait_until(async move { client.write_all(&writer).await });
    Ok(Some(Response::from_body(ResponseBody::Stream(body))?.with_status(head.status).with_headers(headers)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: usize = WAITING_MAX_BYTES;

    fn begun() -> Client {
        let client = Client::default();
        client.respond(ResponseHead { status: 200, headers: Vec::new() });
        client
    }

    fn take(client: &Client) -> String {
        String::from_utf8(client.waiting.take()).unwrap()
    }

    #[test]
    fn an_empty_queue_takes_any_delivery() {
        let client = begun();
        client.deliver(vec![b'x'; 2 * BOUND]);
        assert!(!client.is_gone());
        assert_eq!(client.waiting.borrow().len(), 2 * BOUND);
    }

    #[test]
    fn too_slow_is_who_lets_more_than_the_bound_wait_when_more_comes() {
        let client = begun();
        client.deliver(vec![b'x'; BOUND]);
        client.deliver(vec![b'x'; 1]);
        client.deliver(Vec::new());
        assert!(!client.is_gone(), "nothing more has come since the bound was passed");
        client.deliver(vec![b'x'; 1]);
        assert!(client.is_gone() && client.waiting.borrow().is_empty());
    }

    #[test]
    fn nothing_is_dropped_once_the_end_is_known() {
        let client = begun();
        client.deliver(vec![b'x'; 2 * BOUND]);
        client.close(vec![b'y'; 3]);
        client.deliver(vec![b'z'; 1]);
        client.finish(b"error".to_vec());
        assert!(!client.is_gone());
        assert!(client.waiting.borrow().ends_with(b"xyyy"));
    }

    #[test]
    fn a_stream_that_is_left_open_ends_with_the_error() {
        let client = begun();
        client.deliver(b"data: a\n".to_vec());
        client.deliver(b"\n".to_vec());
        client.finish(b"data: error\n\n".to_vec());
        assert_eq!(take(&client), "data: a\n\ndata: error\n\n");
        assert!(client.closed.get() && !client.is_gone());
    }

    #[test]
    fn inside_an_event_a_blank_line_stands_before_the_error() {
        let client = begun();
        client.deliver(b"data: a".to_vec());
        assert_eq!(take(&client), "data: a");
        client.finish(b"data: error\n\n".to_vec());
        assert_eq!(take(&client), "\n\ndata: error\n\n");
    }

    #[test]
    fn an_answer_that_has_not_begun_gets_no_event() {
        let client = Client::default();
        client.finish(b"data: error\n\n".to_vec());
        assert_eq!(take(&client), "");
        assert!(client.closed.get());
    }
}
