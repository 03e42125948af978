//! A byte pipe to a client: the writing end is ours, the reading end is the body of a response.
//!
//! It is the platform's `IdentityTransformStream`: bytes go to the socket natively, a write is done when they are taken,
//! and it fails when the client has left.

use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{ReadableStream, TransformStream, WritableStreamDefaultWriter};
use worker::js_sys::{Array, Function, Reflect, Uint8Array, global};
use worker::{Error, Result};

/// The writing end.
#[derive(Debug)]
pub struct PipeWriter {
    writer: WritableStreamDefaultWriter,
}

/// A new pipe.
///
/// # Errors
/// When the platform has no `IdentityTransformStream`.
pub fn pipe() -> Result<(PipeWriter, ReadableStream)> {
    let constructor: Function = Reflect::get(&global(), &JsValue::from_str("IdentityTransformStream"))?.dyn_into()?;
    let stream: TransformStream = Reflect::construct(&constructor, &Array::new())?.unchecked_into();
    let writer = stream.writable().get_writer()?;
    Ok((PipeWriter { writer }, stream.readable()))
}

impl PipeWriter {
    /// Writes bytes; done when the client's side has taken them.
    ///
    /// # Errors
    /// When the client has left.
    pub async fn write(&self, bytes: Uint8Array) -> Result<()> {
        JsFuture::from(self.writer.write_with_chunk(&bytes)).await.map(|_| ()).map_err(Error::from)
    }

    /// Ends the body cleanly.
    pub async fn close(&self) {
        // A client that left does not hear the end.
        drop(JsFuture::from(self.writer.close()).await);
    }

    /// Cuts the body: the client sees that it is not whole.
    pub fn abort(&self) {
        let promise = self.writer.abort();
        wasm_bindgen_futures::spawn_local(async move { drop(JsFuture::from(promise).await) });
    }
}
