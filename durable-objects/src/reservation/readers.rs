//! Readers: each is a cursor over the log. The driver never waits for one; a reader that takes nothing for too long is
//! dropped and can come back. The moment when the last one is gone is the disconnect.

use super::edge::EdgeClient;
use super::generation::{Generation, storage_failed};
use crate::clock::{self, sleep_ms};
use crate::notify::Notify;
use crate::pipe::{PipeWriter, pipe};
use futures::future::{Either, select};
use futures::pin_mut;
use holdfast_core::refusal::Refusal;
use holdfast_core::relay::{Relay, is_event_boundary};
use holdfast_core::reservation::{Aggregate, Command, ConnectionState, Reservation, ResponseHead};
use holdfast_core::time::UnixMillis;
use holdfast_core::wire::{GenerationReply, StreamForm};
use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};
use worker::js_sys::Uint8Array;
use worker::{Headers, Request, Response, ResponseBody, Result};

/// A closed log of at most so many bytes is answered in one piece.
const WHOLE_BYTES: u64 = 1 << 20;

/// Bytes before a cursor that tell whether an event ends there: see [`is_event_boundary`].
const BOUNDARY_BYTES: u64 = 4;

/// When a reader came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// Just now.
    Now,
    /// Before: it has waited for the answer.
    Before,
}

/// One attached reader.
#[derive(Debug, Default)]
pub(super) struct Reader {
    id: u64,
    /// Since when it has not taken the bytes that were offered to it.
    blocked_since: Cell<Option<UnixMillis>>,
    gone: Cell<bool>,
    left: Notify,
}

impl Reader {
    /// The reader is gone: its client left, or it was dropped.
    fn leave(&self) {
        if !self.gone.replace(true) {
            self.left.notify();
        }
    }

    async fn left(&self) {
        self.left.changed_since(0).await;
    }
}

/// All readers of one generation.
#[derive(Debug, Default)]
pub(super) struct Readers {
    next_id: u64,
    attached: Vec<Rc<Reader>>,
    /// The client of a driver at the edge: it reads there, not here.
    edge_client: bool,
    furthest_offset: u64,
    /// The timer that looks for stalled readers, while it runs; told when the last reader is gone.
    watch: Option<Rc<Notify>>,
}

impl Readers {
    pub(super) fn attached(&self) -> u32 {
        let here = u32::try_from(self.attached.len()).unwrap_or(u32::MAX);
        here.saturating_add(u32::from(self.edge_client))
    }

    pub(super) fn furthest_offset(&self) -> u64 {
        self.furthest_offset
    }
}

/// Where a reader's bytes come from.
pub(super) enum Source {
    Raw {
        cursor: u64,
    },
    Events {
        cursor: u64,
        relay: Relay,
        ended: bool,
    },
    /// The result that was learnt outside of the stream.
    Result {
        cursor: u64,
        length: u64,
    },
    /// The event form of an answer that is not a stream.
    Body {
        sent: bool,
        with_body: bool,
    },
}

/// What a source has to offer.
enum Offer {
    Bytes(Uint8Array),
    NotYet,
    End,
}

impl Generation {
    /// Attaches a reader and answers with its stream, once the answer has begun.
    pub(super) async fn follow(
        self: &Rc<Self>,
        request: &Request,
        form: StreamForm,
    ) -> core::result::Result<Response, Refusal> {
        self.is_closed()?;
        let reader = self.attach()?;
        listen(request, &reader);
        let response = self.answer_reader(&reader, form).await;
        if !matches!(response, Ok((_, true))) {
            self.detach(&reader);
        }
        response.map(|(response, _)| response).map_err(|error| storage_failed(&error))
    }

    /// Serves the reader from a task of its own.
    pub(super) fn serve_beside(self: &Rc<Self>, reader: &Rc<Reader>, source: Source) -> Result<Response> {
        let (writer, body) = pipe()?;
        let response = Response::from_body(ResponseBody::Stream(body))?;
        let (generation, reader) = (self.clone(), reader.clone());
        self.state.wait_until(async move {
            generation.serve(&reader, &writer, source).await;
            generation.detach(&reader);
        });
        Ok(response)
    }

    /// The answer, and whether a task goes on to serve the reader.
    async fn answer_reader(self: &Rc<Self>, reader: &Rc<Reader>, form: StreamForm) -> Result<(Response, bool)> {
        let offset = match form {
            StreamForm::Raw { offset } => offset,
            StreamForm::Events { after } => after,
        };
        if let Some(reply) = self.nothing_there(offset, Came::Now) {
            return Ok((crate::rpc::reply(&reply)?, false));
        }
        let Some(head) = self.wait_for_answer(reader).await else {
            return Ok((Response::empty()?, false));
        };
        if !self.wait_for_offset(reader, offset).await {
            return Ok((Response::empty()?, false));
        }
        if let Some(reply) = self.cursor_fault(form, offset, &head)? {
            return Ok((crate::rpc::reply(&reply)?, false));
        }
        self.tell_read();
        let headers = self.headers(&head, form)?;
        let status = if matches!(form, StreamForm::Raw { .. }) { head.status } else { 200 };
        if let (StreamForm::Raw { offset }, Some(length)) = (form, self.closed_length())
            && length.saturating_sub(offset) <= WHOLE_BYTES
        {
            let bytes = self.read_to_end(offset)?;
            self.note_progress(length);
            return Ok((Response::from_bytes(bytes)?.with_status(status).with_headers(headers), false));
        }
        let source = match form {
            StreamForm::Raw { offset } => Source::Raw { cursor: offset },
            StreamForm::Events { after } if !is_stream(&head) => Source::Body { sent: false, with_body: after == 0 },
            StreamForm::Events { after } => {
                let event_max_bytes = usize::try_from(self.limits().event_max_bytes).unwrap_or(usize::MAX);
                Source::Events { cursor: after, relay: Relay::new(after, event_max_bytes), ended: false }
            }
        };
        let response = self.serve_beside(reader, source)?;
        Ok((response.with_status(status).with_headers(headers), true))
    }

    /// Waits until the answer has begun, or has ended; `None` when the reader left before.
    async fn wait_for_answer(&self, reader: &Reader) -> Option<ResponseHead> {
        loop {
            let version = self.progress.version();
            if reader.gone.get() {
                return None;
            }
            if let Some(head) = self.head() {
                return Some(head);
            }
            let progress = self.progress.changed_since(version);
            let left = reader.left();
            pin_mut!(progress, left);
            select(progress, left).await;
        }
    }

    /// Waits until the log has the bytes before `offset`, as long as the stream that brings them can be taken up; false
    /// when the reader left before.
    async fn wait_for_offset(&self, reader: &Reader, offset: u64) -> bool {
        loop {
            let version = self.progress.version();
            if reader.gone.get() {
                return false;
            }
            let length = self.log.borrow().length();
            let waits =
                |live: &Reservation| live.may_resume(clock::now()) && live.cursor_beyond(offset, length).is_some();
            if !self.with_aggregate(|aggregate| aggregate.live().is_some_and(waits)) {
                return true;
            }
            let progress = self.progress.changed_since(version);
            let left = reader.left();
            pin_mut!(progress, left);
            select(progress, left).await;
        }
    }

    /// Why the log cannot serve a reader from `offset`, whatever its form. It is told at once where nothing can bring back
    /// what a crash took: a reader that waits for nothing would hold a place.
    fn nothing_there(&self, offset: u64, came: Came) -> Option<GenerationReply> {
        let (length, recalled) = {
            let log = self.log.borrow();
            (log.length(), log.recalls(offset.saturating_sub(BOUNDARY_BYTES)))
        };
        self.with_aggregate(|aggregate| {
            let live = aggregate.live()?;
            // What is not kept is for nobody who comes later. Who was there hears how it ended.
            if live.content_deleted && !(came == Came::Before && recalled) {
                return Some(GenerationReply::ContentDeleted);
            }
            if live.may_resume(clock::now()) {
                return None;
            }
            live.cursor_beyond(offset, length).map(|log_length| GenerationReply::BeyondEnd { log_length })
        })
    }

    fn cursor_fault(&self, form: StreamForm, offset: u64, head: &ResponseHead) -> Result<Option<GenerationReply>> {
        // Asked again: much may have happened while the answer was waited for.
        if let Some(reply) = self.nothing_there(offset, Came::Before) {
            return Ok(Some(reply));
        }
        let log = self.log.borrow();
        // A plain answer is one event: a reader has all of it or nothing.
        if matches!(form, StreamForm::Events { .. }) && !is_stream(head) && offset > 0 && offset < log.length() {
            return Ok(Some(GenerationReply::InvalidCursor));
        }
        if matches!(form, StreamForm::Events { .. }) && is_stream(head) && offset > 0 {
            let before = log.read_bytes(&self.store, offset.saturating_sub(BOUNDARY_BYTES))?.unwrap_or_default();
            let width = usize::try_from(offset.min(BOUNDARY_BYTES)).unwrap_or_default();
            if !is_event_boundary(before.get(..width).unwrap_or(&before)) {
                return Ok(Some(GenerationReply::InvalidCursor));
            }
        }
        Ok(None)
    }

    pub(super) fn headers(&self, head: &ResponseHead, form: StreamForm) -> Result<Headers> {
        let headers = Headers::new();
        for (name, value) in &head.headers {
            headers.set(name, value)?;
        }
        if matches!(form, StreamForm::Events { .. }) {
            headers.set("content-type", "text/event-stream")?;
        }
        let identity = self.with_aggregate(|aggregate| aggregate.live().map(|live| live.identity.clone()));
        for (name, value) in identity.iter().flat_map(holdfast_core::ids::Identity::response_headers) {
            headers.set(name, &value)?;
        }
        Ok(headers)
    }

    /// Length of the log, once nothing will be added.
    fn closed_length(&self) -> Option<u64> {
        let closed = self.with_aggregate(|aggregate| aggregate.live().is_some_and(|live| live.lifecycle.is_terminal()));
        closed.then(|| self.log.borrow().length())
    }

    pub(super) fn read_to_end(&self, offset: u64) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        self.scan_log(offset, |mut bytes| all.append(&mut bytes))?;
        Ok(all)
    }

    /// Serves one reader to the end of the log.
    async fn serve(&self, reader: &Reader, writer: &PipeWriter, mut source: Source) {
        loop {
            let version = self.progress.version();
            if reader.gone.get() {
                return writer.abort();
            }
            match self.offer(&mut source) {
                Ok(Offer::Bytes(bytes)) => {
                    if !self.hand_over(reader, writer, bytes).await {
                        return writer.abort();
                    }
                    if let Source::Raw { cursor } | Source::Events { cursor, .. } = source {
                        self.note_progress(cursor);
                    }
                }
                Ok(Offer::NotYet) => {
                    let progress = self.progress.changed_since(version);
                    let left = reader.left();
                    pin_mut!(progress, left);
                    select(progress, left).await;
                }
                Ok(Offer::End) => return writer.close().await,
                Err(error) => {
                    worker::console_error!("reader: {error}");
                    return writer.abort();
                }
            }
        }
    }

    /// Hands bytes to the client; false when the reader is gone.
    async fn hand_over(&self, reader: &Reader, writer: &PipeWriter, bytes: Uint8Array) -> bool {
        reader.blocked_since.set(Some(clock::now()));
        let written = writer.write(bytes);
        let left = reader.left();
        pin_mut!(written, left);
        let taken = matches!(select(written, left).await, Either::Left((Ok(()), _)));
        reader.blocked_since.set(None);
        taken
    }

    fn offer(&self, source: &mut Source) -> Result<Offer> {
        let log = self.log.borrow();
        match source {
            Source::Raw { cursor } => {
                if let Some(bytes) = log.read(&self.store, *cursor)? {
                    *cursor = cursor.saturating_add(u64::from(bytes.length()));
                    return Ok(Offer::Bytes(bytes));
                }
            }
            Source::Events { cursor, relay, ended } => {
                let mut out = Vec::new();
                while let Some(bytes) = log.read_bytes(&self.store, *cursor)? {
                    *cursor = cursor.saturating_add(bytes.len() as u64);
                    relay.push(&bytes, &mut out);
                    if !out.is_empty() {
                        return Ok(Offer::Bytes(Uint8Array::from(out.as_slice())));
                    }
                }
                if let Some(end) = self.end_event().filter(|_| !*ended) {
                    *ended = true;
                    return Ok(Offer::Bytes(Uint8Array::from(end.as_slice())));
                }
            }
            Source::Result { cursor, length } => {
                let piece = self.result_from(*cursor, *length)?;
                *cursor = cursor.saturating_add(piece.len() as u64);
                let bytes = || Offer::Bytes(Uint8Array::from(piece.as_slice()));
                return Ok(if piece.is_empty() { Offer::End } else { bytes() });
            }
            Source::Body { sent, with_body } => {
                if let Some(end) = self.end_event().filter(|_| !*sent) {
                    *sent = true;
                    let mut out = if *with_body { Relay::body(&self.read_to_end(0)?) } else { Vec::new() };
                    out.extend(end);
                    return Ok(Offer::Bytes(Uint8Array::from(out.as_slice())));
                }
            }
        }
        Ok(if self.closed_length().is_some() { Offer::End } else { Offer::NotYet })
    }

    fn end_event(&self) -> Option<Vec<u8>> {
        let length = self.closed_length()?;
        self.with_aggregate(|aggregate| aggregate.live().map(|live| Relay::end(live.lifecycle.as_str(), length)))
    }

    fn note_progress(&self, offset: u64) {
        let mut readers = self.readers.borrow_mut();
        readers.furthest_offset = readers.furthest_offset.max(offset);
    }

    pub(super) fn attach(self: &Rc<Self>) -> core::result::Result<Rc<Reader>, Refusal> {
        let reader = {
            let mut readers = self.readers.borrow_mut();
            if readers.attached() >= self.limits().readers_max {
                return Err(Refusal::TooManyReaders);
            }
            readers.next_id = readers.next_id.saturating_add(1);
            let reader = Rc::new(Reader { id: readers.next_id, ..Reader::default() });
            readers.attached.push(reader.clone());
            reader
        };
        self.readers_changed();
        self.watch_readers();
        Ok(reader)
    }

    pub(super) fn detach(self: &Rc<Self>, reader: &Reader) {
        {
            let mut readers = self.readers.borrow_mut();
            readers.attached.retain(|other| other.id != reader.id);
            if readers.attached.is_empty()
                && let Some(watch) = readers.watch.take()
            {
                watch.notify();
            }
        }
        self.readers_changed();
    }

    pub(super) fn edge_client_attached(self: &Rc<Self>) {
        self.readers.borrow_mut().edge_client = true;
        self.readers_changed();
    }

    /// What the edge's client was given. A restarted object learns by it that there is one.
    pub(super) fn edge_progress(self: &Rc<Self>, client: EdgeClient) {
        let unknown = {
            let mut readers = self.readers.borrow_mut();
            readers.furthest_offset = readers.furthest_offset.max(client.furthest_offset);
            client.attached && !readers.edge_client
        };
        if unknown {
            self.edge_client_attached();
        }
    }

    /// The edge's client left; false when that is stored already. Memory does not decide: it may be that of a restarted
    /// object.
    pub(super) fn edge_client_left(self: &Rc<Self>) -> bool {
        self.readers.borrow_mut().edge_client = false;
        let known = self.with_aggregate(|aggregate| {
            aggregate.live().is_none_or(|live| live.connection.state == ConnectionState::Disconnected)
        });
        let left = !known && self.readers.borrow().attached() == 0;
        if left {
            self.readers_changed();
        }
        left
    }

    /// The edge's client is gone with its driver, and nothing else tells.
    pub(super) fn forget_edge_client(&self) {
        self.readers.borrow_mut().edge_client = false;
    }

    pub(super) fn readers_changed(self: &Rc<Self>) {
        let (attached, furthest_offset) = {
            let readers = self.readers.borrow();
            (readers.attached(), readers.furthest_offset)
        };
        let started = self.with_aggregate(|aggregate| matches!(aggregate, Aggregate::Live(_)));
        if !started {
            return;
        }
        let command = Command::Readers { attached, furthest_offset };
        let applied = if attached == 0 { self.apply_disconnect(&command) } else { self.apply(&command) };
        if let Err(refusal) = applied {
            worker::console_error!("readers: {}", refusal.message());
        }
    }

    /// One timer for all readers, while there are any.
    fn watch_readers(self: &Rc<Self>) {
        let watch = Rc::new(Notify::default());
        {
            let mut readers = self.readers.borrow_mut();
            if readers.watch.is_some() {
                return;
            }
            readers.watch = Some(watch.clone());
        }
        let generation = self.clone();
        self.state.wait_until(async move {
            while watch.version() == 0 {
                let pause = sleep_ms((generation.limits().reader_stall_ms / 2).max(1));
                let all_gone = watch.changed_since(0);
                pin_mut!(pause, all_gone);
                select(pause, all_gone).await;
                generation.drop_stalled_readers();
            }
        });
    }

    /// Drops readers that have not taken what was offered to them for too long.
    pub(super) fn drop_stalled_readers(&self) {
        let now = clock::now();
        let stall_ms = self.limits().reader_stall_ms;
        for reader in &self.readers.borrow().attached {
            if reader.blocked_since.get().is_some_and(|since| now.since(since) >= stall_ms) {
                reader.leave();
            }
        }
    }
}

fn is_stream(head: &ResponseHead) -> bool {
    crate::egress::is_event_stream(head)
}

/// Hears the client leave, where the platform tells. A failed write tells too.
pub(super) fn listen(request: &Request, reader: &Rc<Reader>) {
    let reader = reader.clone();
    let on_abort = Closure::once_into_js(AssertUnwindSafe(move || reader.leave()));
    let signal = request.inner().signal();
    if signal.add_event_listener_with_callback("abort", on_abort.unchecked_ref()).is_err() {
        worker::console_error!("the request has no signal");
    }
    let _: JsValue = on_abort;
}
