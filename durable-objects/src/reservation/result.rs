//! The result that was learnt outside of the stream: stored when it is told, read in the stead of a log that broke off.
//! What is kept, and when, is decided by [`holdfast_core::reservation::result`].

use super::generation::{Generation, storage_failed};
use super::readers::{Source, listen};
use crate::egress::Told;
use holdfast_core::dialect::Dialect;
use holdfast_core::operation::{Answer, AnswerBody, NotTold, read_final_form};
use holdfast_core::policy::Terms;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Command, ResponseHead, ToldResult};
use holdfast_core::wire::StreamForm;
use std::rc::Rc;
use worker::{Error, Request, Response, Result};

/// An answer of a provider about an operation, and what is read of it.
pub(super) struct Heard {
    pub(super) dialect: Dialect,
    status: u16,
    retry_after_ms: Option<u64>,
    excerpt: Vec<u8>,
    body: AnswerBody,
}

impl Heard {
    pub(super) fn of(terms: &Terms, told: Told) -> Self {
        let Told { status, retry_after_ms, body } = told;
        Self { dialect: terms.dialect, status, retry_after_ms, excerpt: body.excerpt(), body }
    }

    pub(super) fn answer(&self) -> Answer<'_> {
        Answer { status: self.status, retry_after_ms: self.retry_after_ms, body: &self.excerpt }
    }
}

impl Generation {
    /// Keeps the final form of the operation, if the answer is one. It comes before the word that the answer brings: behind
    /// that nobody asks again.
    pub(super) fn keep_result(self: &Rc<Self>, operation_id: &str, heard: Heard) -> core::result::Result<(), NotTold> {
        let Some(form) = read_final_form(heard.dialect, operation_id, &heard.answer()) else { return Ok(()) };
        let (length, max_bytes) = (heard.body.length(), self.limits().generation_max_bytes);
        let command = Command::ResultTold { operation_id: operation_id.into(), form, length, max_bytes };
        *self.result.borrow_mut() = heard.body.into_pieces();
        let told = self.tell(&command);
        self.result.take();
        told.map(|_| ()).ok_or(NotTold { retry_after_ms: None })
    }

    /// Answers with the result.
    pub(super) fn read_result(
        self: &Rc<Self>,
        request: &Request,
        result: ToldResult,
    ) -> core::result::Result<Response, Refusal> {
        let reader = self.attach()?;
        listen(request, &reader);
        self.tell_read();
        let head = ResponseHead { status: 200, headers: vec![("content-type".into(), "application/json".into())] };
        let source = Source::Result { cursor: 0, length: result.length };
        let response = self
            .headers(&head, StreamForm::Raw { offset: 0 })
            .and_then(|headers| Ok(self.serve_beside(&reader, source)?.with_headers(headers)));
        response.map_err(|error| {
            self.detach(&reader);
            storage_failed(&error)
        })
    }

    /// The stored piece that begins at `cursor`; empty at the end. What was deleted meanwhile has no end.
    pub(super) fn result_from(&self, cursor: u64, length: u64) -> Result<Vec<u8>> {
        if cursor >= length {
            return Ok(Vec::new());
        }
        let piece = self.store.result_piece(cursor)?;
        if piece.is_empty() { Err(Error::from("an empty piece of a result")) } else { Ok(piece) }
    }
}
