//! Streams recorded from real providers. They are not part of the repository: where the folder is absent, the tests
//! that replay them say so and check nothing.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Api;
use crate::wait::shout;

/// One recorded stream.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The API that it answers.
    pub api: Api,
    /// The model that makes the simulator replay it.
    pub model: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The provider's id in it.
    pub operation_id: String,
    /// Why it ended.
    pub finish: String,
    /// Whether it ends with a failure that the provider tells.
    pub fails: bool,
    /// Input tokens that the provider reported, caches included.
    pub input_tokens: u64,
    /// Output tokens that the provider bills.
    pub output_tokens: u64,
}

/// The folder of recordings, if it is there. Says loudly if it is not.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    let found = find();
    if found.is_none() {
        shout("SKIPPED: there are no recorded streams beside the repository, at ../shared/streams");
    }
    found
}

/// The folder of recordings, if it is there.
pub(crate) fn find() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/streams");
    folder.join("index.json").is_file().then_some(folder)
}

/// All recordings of chat completions in the folder.
///
/// # Panics
/// When the folder is not as its index says.
#[must_use]
pub fn chat_recordings(folder: &Path) -> Vec<Recording> {
    let mut recordings = all_recordings(folder);
    recordings.retain(|recording| recording.api == Api::Chat);
    assert!(recordings.len() >= 6, "recordings are missing: {recordings:?}");
    recordings
}

/// All recordings in the folder.
///
/// # Panics
/// When the folder is not as its index says.
#[must_use]
pub fn all_recordings(folder: &Path) -> Vec<Recording> {
    let index = std::fs::read(folder.join("index.json")).expect("an index of recordings");
    let index: Value = serde_json::from_slice(&index).expect("the index is JSON");
    let entries = index.as_array().expect("the index is a list");
    let recordings: Vec<_> = entries.iter().map(|entry| read(folder, entry)).collect();
    for api in [Api::Chat, Api::Responses, Api::Messages, Api::Gemini] {
        assert!(recordings.iter().any(|recording| recording.api == api), "no recording of {api:?}");
    }
    recordings
}

fn read(folder: &Path, entry: &Value) -> Recording {
    let text = |name: &str| entry[name].as_str().unwrap_or_else(|| panic!("{name} in {entry}")).to_owned();
    let file = text("file");
    let usage = &entry["usage"];
    let output = usage.get("billable_output").unwrap_or(&usage["output"]);
    let fails = text("finish") == "response.failed";
    let tokens = |count: &Value| if fails { 0 } else { count.as_u64().expect("tokens") };
    Recording {
        api: Api::of_dialect(&text("dialect")),
        fails,
        model: format!("recording/{}", file.strip_suffix(".sse").expect("a recording is a .sse file")),
        bytes: std::fs::read(folder.join(&file)).unwrap_or_else(|error| panic!("{file}: {error}")),
        operation_id: text("provider_operation_id"),
        finish: text("finish"),
        input_tokens: tokens(&usage["input"]),
        output_tokens: tokens(output),
    }
}
