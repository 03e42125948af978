//! Operations in the background of their provider: what a request says about it, and the edit that switches it there.

use super::members::{Members, boolean, is_null};
use super::{Edit, Endpoint, GenerationRequest, RequestError, STREAM_OPTIONS};
use crate::policy::Background;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const BACKGROUND: &str = "background";
const STORE: &str = "store";
const INCLUDE_OBFUSCATION: &str = "include_obfuscation";

/// What a body says about it. Only a stream that the provider may store can be switched; what a client asks for itself
/// must be one too: nobody would come back for anything else.
pub(super) fn read(endpoint: Endpoint, members: &Members<'_>, stream: bool) -> Result<Background, RequestError> {
    if !endpoint.dialect().has_background() {
        return Ok(Background::Never);
    }
    let store = boolean(members.get(STORE), STORE)?;
    match boolean(members.get(BACKGROUND), BACKGROUND)? {
        Some(true) if !stream => Err(RequestError::NeedsStream(BACKGROUND)),
        Some(true) => Ok(Background::Asked),
        None if stream && store != Some(false) => Ok(Background::Open),
        Some(false) | None => Ok(Background::Never),
    }
}

impl GenerationRequest<'_> {
    /// What it says about running in the background at its provider.
    #[must_use]
    pub const fn background(&self) -> Background {
        self.background
    }

    /// Switches it to the background: stored there, and without padding that would differ when its stream is asked for
    /// again. What the client wrote itself stays.
    pub(super) fn run_in_background(&self, changes: &mut Vec<Edit>, added: &mut Vec<String>) {
        for name in [BACKGROUND, STORE] {
            match self.members.get(name) {
                None => added.push(format!(r#""{name}":true"#)),
                Some(raw) if is_null(raw) => changes.extend(self.edit(raw, String::from("true"))),
                Some(_) => {}
            }
        }
        let plain = format!(r#""{INCLUDE_OBFUSCATION}":false"#);
        let Some(raw) = self.members.get(STREAM_OPTIONS) else {
            added.push(format!(r#""{STREAM_OPTIONS}":{{{plain}}}"#));
            return;
        };
        if is_null(raw) {
            changes.extend(self.edit(raw, format!("{{{plain}}}")));
        } else if let Ok(options) = Members::read(raw.get())
            && options.get(INCLUDE_OBFUSCATION).is_none()
        {
            changes.extend(self.add_inside(raw, options.is_empty(), &plain));
        }
    }
}
