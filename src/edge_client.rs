//! The one client of a generation that the edge drives: bytes wait here until it takes them, up to a bound.

use holdfast_core::reservation::ResponseHead;
use holdfast_objects::notify::Notify;
use holdfast_objects::pipe::{PipeWriter, pipe};
use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use worker::js_sys::Uint8Array;
use worker::{Context, Headers, Request, Response, ResponseBody, Result};

/// A client that lets so many bytes wait is dropped; it reads on from the log.
const WAITING_MAX_BYTES: usize = 1 << 20;

/// What the client gets and how far it is.
#[derive(Default)]
pub(crate) struct Client {
    head: RefCell<Option<ResponseHead>>,
    waiting: RefCell<Vec<u8>>,
    taken_bytes: Cell<u64>,
    ending: Cell<Ending>,
    gone: Cell<bool>,
    finished: Cell<bool>,
    changed: Notify,
}

/// How the answer ends, once that is known.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Ending {
    #[default]
    Open,
    Closed,
    Cut,
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

    /// Bytes for the client. Never waits.
    pub(crate) fn deliver(&self, bytes: Vec<u8>) {
        if self.gone.get() {
            return;
        }
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            *waiting = bytes;
        } else {
            waiting.extend(bytes);
        }
        let too_slow = waiting.len() > WAITING_MAX_BYTES;
        drop(waiting);
        if too_slow { self.leave() } else { self.changed.notify() }
    }

    /// The answer is whole.
    pub(crate) fn close(&self) {
        self.end(Ending::Closed);
    }

    /// The answer breaks off: the client sees that it is not whole.
    pub(crate) fn cut(&self) {
        self.end(Ending::Cut);
    }

    fn end(&self, ending: Ending) {
        if self.ending.get() == Ending::Open {
            self.ending.set(ending);
            self.changed.notify();
        }
    }

    /// The driver has ended; an answer that it left open breaks off.
    pub(crate) fn finish(&self) {
        self.cut();
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
            if self.finished.get() || self.ending.get() != Ending::Open {
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
            if self.ending.get() != Ending::Open || self.gone.get() {
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
            match self.ending.get() {
                Ending::Open => self.changed.changed_since(version).await,
                Ending::Closed => return writer.close().await,
                Ending::Cut => return writer.abort(),
            }
        }
    }
}

/// The client's answer, once it has begun.
///
/// # Errors
/// When the answer broke off before it began, or the platform refuses a header.
pub(crate) async fn serve(context: &Context, client: &Rc<Client>) -> Result<Response> {
    let Some(head) = client.begun().await else {
        return Err(worker::Error::from("the generation ended without an answer"));
    };
    let headers = Headers::new();
    for (name, value) in &head.headers {
        headers.set(name, value)?;
    }
    let (writer, body) = pipe()?;
    let client = client.clone();
    context.wait_until(async move { client.write_all(&writer).await });
    Ok(Response::from_body(ResponseBody::Stream(body))?.with_status(head.status).with_headers(headers))
}
