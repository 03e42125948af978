//! How many bytes of content an answer that ended badly had delivered: the basis of an upper bound on its output tokens.

use crate::dialect::Dialect;

/// Longer keys are not looked at; no key that matters is longer.
const KEY_MAX_BYTES: usize = 20;

/// UTF-8 bytes that one `\uXXXX` may stand for, at most.
const UNICODE_ESCAPE_BYTES: u64 = 3;

/// Where a dialect has what the model generated.
#[derive(Debug)]
struct Places {
    /// Objects and lists under these keys: every string in them counts.
    containers: &'static [&'static [u8]],
    /// A string under this key counts, wherever it stands.
    leaf: Option<&'static [u8]>,
    /// Objects under these keys, within a container, that were generated as text: every byte of them counts.
    verbatim: &'static [&'static [u8]],
    /// Strings in a container with these keys are framing, not generated.
    framing: &'static [&'static [u8]],
    /// A container under this key repeats what strings under `leaf` have brought: the larger of the two counts.
    repeats: Option<&'static [u8]>,
}

const NOWHERE: Places = Places { containers: &[], leaf: None, verbatim: &[], framing: &[], repeats: None };

/// `text` is that of the older Completions.
const CHAT: Places = Places {
    containers: &[b"delta", b"message"],
    leaf: Some(b"text"),
    framing: &[b"role", b"id", b"type", b"object", b"obfuscation"],
    ..NOWHERE
};

/// Text comes as `delta`, a string; an item that is done repeats it, and some items come only then. The terminal event
/// repeats everything, under `output`, which is not counted.
const RESPONSES: Places = Places {
    containers: &[b"item"],
    leaf: Some(b"delta"),
    verbatim: &[b"action", b"operation"],
    framing: &[b"role", b"id", b"type", b"object", b"status", b"call_id", b"encrypted_content"],
    repeats: Some(b"item"),
};

/// The results of the provider's own tools are input, not output.
const MESSAGES: Places = Places {
    containers: &[b"delta", b"content_block"],
    verbatim: &[b"input"],
    framing: &[
        b"role",
        b"id",
        b"type",
        b"tool_use_id",
        b"signature",
        b"stop_reason",
        b"stop_sequence",
        b"cited_text",
        b"encrypted_content",
        b"encrypted_index",
        b"url",
        b"title",
        b"page_age",
    ],
    ..NOWHERE
};

const GEMINI: Places = Places {
    containers: &[b"content"],
    verbatim: &[b"args"],
    framing: &[b"role", b"id", b"mimeType", b"thoughtSignature"],
    ..NOWHERE
};

impl Places {
    const fn of(dialect: Dialect) -> &'static Self {
        match dialect {
            Dialect::OpenaiChat => &CHAT,
            Dialect::OpenaiResponses => &RESPONSES,
            Dialect::AnthropicMessages => &MESSAGES,
            Dialect::Gemini => &GEMINI,
            Dialect::Opaque => &NOWHERE,
        }
    }
}

/// Counts the content bytes in the stored bytes of an answer, fed in pieces of any size.
///
/// What the model generated counts with its decoded length: text, reasoning that is shown, refusals, tool names and
/// arguments, and members nobody knows yet, but not roles, ids and types. Models emit at most one token per byte of visible
/// output, so the total bounds the visible output tokens. A log that was cut anywhere is counted up to the cut. Of an
/// opaque answer every byte counts.
#[derive(Debug)]
pub struct ContentCounter {
    framing: Option<Framing>,
    json: Json,
    /// All bytes, of an answer whose meaning is not known.
    opaque_bytes: Option<u64>,
}

/// Position in the lines of an event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Line {
    /// So many bytes of `data:` were matched.
    Prefix(usize),
    Data,
    Other,
}

#[derive(Debug)]
struct Framing {
    line: Line,
    after_cr: bool,
}

#[derive(Debug)]
struct Json {
    places: &'static Places,
    total: u64,
    /// Bytes of strings under the leaf key since the last container that repeats them.
    leaf_bytes: u64,
    /// Bytes of the container that is open, where it repeats.
    repeated_bytes: u64,
    depth: u32,
    /// Depth of the container that is being counted.
    counted_from: Option<u32>,
    /// Whether that container repeats.
    repeats: bool,
    /// Depth of the object whose every byte counts.
    verbatim_from: Option<u32>,
    in_string: bool,
    escaped: bool,
    hex_digits_left: u8,
    /// Decoded length of the last string, until it is known to be a key or a value.
    string_bytes: u64,
    /// Raw start of the last string.
    text: Key,
    /// Key of the current value, where it has one.
    key: Option<Key>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Key {
    bytes: [u8; KEY_MAX_BYTES],
    len: usize,
    too_long: bool,
}

impl ContentCounter {
    /// For a log of server-sent events.
    #[must_use]
    pub fn for_events(dialect: Dialect) -> Self {
        let framing = Some(Framing { line: Line::Prefix(0), after_cr: false });
        Self { framing, ..Self::for_body(dialect) }
    }

    /// For a plain JSON body.
    #[must_use]
    pub fn for_body(dialect: Dialect) -> Self {
        let opaque_bytes = (dialect == Dialect::Opaque).then_some(0);
        Self { framing: None, json: Json::new(Places::of(dialect)), opaque_bytes }
    }

    /// Takes the next bytes of the log.
    pub fn push(&mut self, bytes: &[u8]) {
        if let Some(all) = &mut self.opaque_bytes {
            *all = all.saturating_add(bytes.len() as u64);
            return;
        }
        for &byte in bytes {
            match &mut self.framing {
                Some(framing) => framing.take(byte, &mut self.json),
                None => self.json.take(byte),
            }
        }
    }

    /// Content bytes so far, with those of a value that is not finished.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.opaque_bytes.unwrap_or_else(|| self.json.total_so_far())
    }
}

impl Framing {
    fn take(&mut self, byte: u8, json: &mut Json) {
        let after_cr = core::mem::replace(&mut self.after_cr, byte == b'\r');
        if byte == b'\n' && after_cr {
            return;
        }
        if byte == b'\n' || byte == b'\r' {
            if self.line == Line::Prefix(0) {
                json.restart();
            } else {
                json.break_string();
            }
            self.line = Line::Prefix(0);
            return;
        }
        match self.line {
            Line::Data => json.take(byte),
            Line::Other => {}
            // A byte order mark does not end the search for the prefix.
            Line::Prefix(0) if matches!(byte, 0xEF | 0xBB | 0xBF) => {}
            Line::Prefix(matched) => {
                self.line = match (b"data:".get(matched), matched) {
                    (Some(&expected), 4) if expected == byte => Line::Data,
                    (Some(&expected), _) if expected == byte => Line::Prefix(matched.saturating_add(1)),
                    _ => Line::Other,
                };
            }
        }
    }
}

impl Json {
    fn new(places: &'static Places) -> Self {
        Self {
            places,
            total: 0,
            leaf_bytes: 0,
            repeated_bytes: 0,
            depth: 0,
            counted_from: None,
            repeats: false,
            verbatim_from: None,
            in_string: false,
            escaped: false,
            hex_digits_left: 0,
            string_bytes: 0,
            text: Key::default(),
            key: None,
        }
    }

    fn total_so_far(&self) -> u64 {
        let (counted, leaf) = self.uncounted();
        let of_container = if self.repeats { counted } else { 0 };
        let repeated = self.repeated_bytes.saturating_add(of_container);
        let open = repeated.max(self.leaf_bytes.saturating_add(leaf));
        self.total.saturating_add(open).saturating_add(counted.saturating_sub(of_container))
    }

    fn take(&mut self, byte: u8) {
        if self.verbatim_from.is_some() && !byte.is_ascii_whitespace() {
            self.count(1);
        }
        if self.in_string {
            self.take_in_string(byte);
            return;
        }
        match byte {
            b'"' => {
                self.settle_string();
                self.in_string = true;
                self.text = Key::default();
            }
            b':' => {
                self.key = Some(self.text);
                self.string_bytes = 0;
            }
            b',' => self.settle_string(),
            b'{' | b'[' => self.open(),
            b'}' | b']' => self.close(),
            _ => {}
        }
    }

    fn take_in_string(&mut self, byte: u8) {
        if self.hex_digits_left > 0 {
            self.hex_digits_left = self.hex_digits_left.saturating_sub(1);
            return;
        }
        if self.escaped {
            self.escaped = false;
            if byte == b'u' {
                self.hex_digits_left = 4;
                self.grow(UNICODE_ESCAPE_BYTES);
            } else {
                self.grow(1);
            }
        } else if byte == b'"' {
            self.in_string = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else {
            self.text.push(byte);
            self.grow(1);
        }
    }

    fn open(&mut self) {
        self.settle_string();
        self.depth = self.depth.saturating_add(1);
        let under = |names: &[&[u8]]| self.key.is_some_and(|key| names.iter().any(|name| key.is(name)));
        if self.counted_from.is_none() && under(self.places.containers) {
            self.counted_from = Some(self.depth);
            self.repeats = self.places.repeats.is_some_and(|name| under(&[name]));
        } else if self.counted_from.is_some() && self.verbatim_from.is_none() && under(self.places.verbatim) {
            self.verbatim_from = Some(self.depth);
            self.count(1);
        }
        self.key = None;
    }

    fn close(&mut self) {
        self.settle_string();
        if self.verbatim_from == Some(self.depth) {
            self.verbatim_from = None;
        }
        if self.counted_from == Some(self.depth) {
            self.close_container();
        }
        self.depth = self.depth.saturating_sub(1);
        self.key = None;
    }

    fn close_container(&mut self) {
        self.counted_from = None;
        if core::mem::take(&mut self.repeats) {
            let larger = core::mem::take(&mut self.repeated_bytes).max(core::mem::take(&mut self.leaf_bytes));
            self.total = self.total.saturating_add(larger);
        }
    }

    const fn grow(&mut self, bytes: u64) {
        self.string_bytes = self.string_bytes.saturating_add(bytes);
    }

    /// Counts bytes of the container that is open.
    const fn count(&mut self, bytes: u64) {
        let sum = if self.repeats { &mut self.repeated_bytes } else { &mut self.total };
        *sum = sum.saturating_add(bytes);
    }

    /// The last string was a value: counts it.
    fn settle_string(&mut self) {
        let (counted, leaf) = self.uncounted();
        self.count(counted);
        self.leaf_bytes = self.leaf_bytes.saturating_add(leaf);
        self.string_bytes = 0;
    }

    /// What the last string counts, in a container and as a leaf. In an object whose every byte counts, it has counted.
    fn uncounted(&self) -> (u64, u64) {
        if self.verbatim_from.is_some() {
            return (0, 0);
        }
        let under = |names: &[&[u8]]| self.key.is_some_and(|key| names.iter().any(|name| key.is(name)));
        if self.counted_from.is_some() {
            return if under(self.places.framing) { (0, 0) } else { (self.string_bytes, 0) };
        }
        let leaf = self.places.leaf.is_some_and(|name| under(&[name]));
        (0, if leaf { self.string_bytes } else { 0 })
    }

    /// A new event begins; what the last one left open was content as far as it goes.
    fn restart(&mut self) {
        self.settle_string();
        if self.counted_from.is_some() {
            self.close_container();
        }
        let Self { places, total, leaf_bytes, .. } = *self;
        *self = Self { total, leaf_bytes, ..Self::new(places) };
    }

    /// No JSON string goes over a line: after a broken one, structure is looked for again.
    const fn break_string(&mut self) {
        self.in_string = false;
        self.escaped = false;
        self.hex_digits_left = 0;
    }
}

impl Key {
    fn push(&mut self, byte: u8) {
        match self.bytes.get_mut(self.len) {
            Some(slot) => {
                *slot = byte;
                self.len = self.len.saturating_add(1);
            }
            None => self.too_long = true,
        }
    }

    fn is(&self, name: &[u8]) -> bool {
        !self.too_long && self.bytes.get(..self.len) == Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn count(log: &[u8]) -> u64 {
        count_of(Dialect::OpenaiChat, log)
    }

    fn count_of(dialect: Dialect, log: &[u8]) -> u64 {
        let mut counter = ContentCounter::for_events(dialect);
        counter.push(log);
        counter.total()
    }

    #[test]
    fn generated_strings_count_with_their_decoded_length() {
        let cases: [(&str, u64); 14] = [
            (r#"data: {"choices":[{"delta":{"role":"assistant","content":"Hi"}}]}"#, 2),
            (r#"data: {"id":"x","choices":[{"delta":{"content":"é"}}],"model":"m"}"#, 2),
            (r#"data: {"choices":[{"delta":{"content":"a\"b\\c\n"}}]}"#, 6),
            (r#"data: {"choices":[{"delta":{"content":"\u4e2d\u6587"}}]}"#, 6),
            (r#"data: {"choices":[{"delta":{"reasoning_content":"abc","content":null}}]}"#, 3),
            (r#"data: {"choices":[{"delta":{"refusal":"no"}}]}"#, 2),
            (
                r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}}]}"#,
                8,
            ),
            (r#"data: {"choices":[{"delta":{"future":{"deep":["ab",{"id":"q"},"cd"]}}}]}"#, 4),
            (r#"data: {"choices":[{"delta":{},"logprobs":{"content":[{"token":"abc"}]}}]}"#, 0),
            (r#"data: {"choices":[],"obfuscation":"xxxxxxxx"}"#, 0),
            (r#"data: {"error":{"message":"a long explanation"}}"#, 0),
            ("data: [DONE]", 0),
            (r#": {"delta":{"content":"comment"}}"#, 0),
            (r#"event: {"delta":{"content":"name"}}"#, 0),
        ];
        for (text, expected) in cases {
            assert_eq!(count(text.as_bytes()), expected, "{text}");
            for ending in ["\n\n", "\r\n\r\n", "\r\r"] {
                let log = [text, ending, text, ending].concat();
                assert_eq!(count(log.as_bytes()), expected * 2, "{log}");
            }
        }
    }

    #[test]
    fn several_data_lines_make_one_document() {
        let log = b"data: {\"choices\":[{\"delta\":\r\ndata: {\"content\":\r\ndata: \"abc\"}}]}\r\n\r\n";
        assert_eq!(count(log), 3);
        assert_eq!(count(b"data: {\"delta\":{\"content\":\n: note \"\ndata: \"abc\"}}\n\n"), 3);
    }

    #[test]
    fn a_cut_log_counts_up_to_the_cut_and_goes_on_after_it() {
        let log = b"data: {\"choices\":[{\"delta\":{\"content\":\"abcdef\"}}]}\n\n";
        let cut = log.len() - 8;
        assert_eq!(count(&log[..cut]), 5);
        let mut joined: Vec<u8> = log[..cut].to_vec();
        joined.extend_from_slice(b"\n\ndata: {\"error\":{\"message\":\"cut\"}}\n\n");
        assert_eq!(count(&joined), 5);
        joined.extend_from_slice(log);
        assert_eq!(count(&joined), 11);
        let mut last = 0;
        for end in 0..=joined.len() {
            let total = count(&joined[..end]);
            assert!(total + 7 >= last, "only an unfinished key may be taken back");
            last = total;
        }
    }

    #[test]
    fn each_dialect_has_its_places() {
        let responses = Dialect::OpenaiResponses;
        let messages = Dialect::AnthropicMessages;
        for (dialect, events, expected) in [
            (Dialect::OpenaiChat, &[r#"{"choices":[{"index":0,"text":"four"}]}"#][..], 4),
            (
                responses,
                &[r#"{"type":"response.output_text.delta","item_id":"m","delta":"abc","obfuscation":"xx"}"#],
                3,
            ),
            (responses, &[r#"{"delta":"abc"}"#, r#"{"delta":"de"}"#, r#"{"text":"abcde"}"#], 5),
            (
                responses,
                &[
                    r#"{"delta":"abc"}"#,
                    r#"{"item":{"id":"m","type":"message","content":[{"type":"t","text":"abc"}]}}"#,
                ],
                3,
            ),
            (responses, &[r#"{"item":{"type":"function_call","name":"f","arguments":"{}"}}"#, r#"{"delta":"x"}"#], 4),
            (responses, &[r#"{"item":{"type":"web","action":{"q":7}}}"#], 7),
            (responses, &[r#"{"response":{"output":[{"content":[{"text":"abcde"}]}]}}"#], 0),
            (messages, &[r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}"#], 2),
            (messages, &[r#"{"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}"#], 4),
            (messages, &[r#"{"delta":{"type":"signature_delta","signature":"long"}}"#], 0),
            (messages, &[r#"{"delta":{"stop_reason":"end_turn","stop_sequence":"x"},"usage":{"output_tokens":3}}"#], 0),
            (messages, &[r#"{"content_block":{"type":"tool_use","id":"t","name":"look","input":{}}}"#], 6),
            (Dialect::Gemini, &[r#"{"candidates":[{"content":{"parts":[{"text":"Hi"}],"role":"model"}}]}"#], 2),
            (
                Dialect::Gemini,
                &[r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"n": 12}}}]}}]}"#],
                9,
            ),
            (Dialect::Gemini, &[r#"{"content":{"parts":[{"thoughtSignature":"c2ln"}]},"modelVersion":"m"}"#], 0),
        ] {
            let log: alloc::string::String = events.iter().map(|event| alloc::format!("data: {event}\n\n")).collect();
            assert_eq!(count_of(dialect, log.as_bytes()), expected, "{dialect:?} {events:?}");
        }
        assert_eq!(count_of(Dialect::Opaque, b"any bytes"), 9);
    }

    #[test]
    fn an_item_that_was_cut_counts_once() {
        let log = br#"data: {"delta":"abcdef"}

data: {"item":{"content":[{"text":"abc"#;
        assert_eq!(count_of(Dialect::OpenaiResponses, log), 6);
        let longer = br#"data: {"delta":"ab"}

data: {"item":{"content":[{"text":"abcdef"#;
        assert_eq!(count_of(Dialect::OpenaiResponses, longer), 6);
    }

    #[test]
    fn a_plain_body_may_have_line_breaks() {
        let body = b"{\n \"choices\": [ {\n \"message\": {\n \"role\": \"assistant\",\n \"content\": \"four\"\n} } ] }";
        let mut counter = ContentCounter::for_body(Dialect::OpenaiChat);
        for byte in body {
            counter.push(&[*byte]);
        }
        assert_eq!(counter.total(), 4);
    }
}
