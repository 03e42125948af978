//! How many bytes of content an answer that ended badly had delivered: the basis of an upper bound on its output tokens.

/// Strings under `delta` or `message` with these keys are framing, not generated.
const FRAMING_KEYS: [&[u8]; 5] = [b"role", b"id", b"type", b"object", b"obfuscation"];

/// Longer keys are not looked at; no key that matters is longer.
const KEY_MAX_BYTES: usize = 16;

/// UTF-8 bytes that one `\uXXXX` may stand for, at most.
const UNICODE_ESCAPE_BYTES: u64 = 3;

/// Counts the content bytes in the stored bytes of an OpenAI-chat answer, fed in pieces of any size.
///
/// Every string below a `delta` or `message` object counts with its decoded length (text, reasoning, refusals, tool names
/// and arguments, and members nobody knows yet), except for roles, ids and types. Models emit at most one token per byte
/// of visible output, so the total bounds the visible output tokens. A log that was cut anywhere is counted up to the cut.
#[derive(Debug)]
pub struct ContentCounter {
    framing: Option<Framing>,
    json: Json,
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

#[derive(Debug, Default)]
struct Json {
    total: u64,
    depth: u32,
    /// Depth of the `delta` or `message` that is being counted.
    counted_from: Option<u32>,
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
    pub fn for_events() -> Self {
        Self { framing: Some(Framing { line: Line::Prefix(0), after_cr: false }), json: Json::default() }
    }

    /// For a plain JSON body.
    #[must_use]
    pub fn for_body() -> Self {
        Self { framing: None, json: Json::default() }
    }

    /// Takes the next bytes of the log.
    pub fn push(&mut self, bytes: &[u8]) {
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
        self.json.total.saturating_add(self.json.uncounted())
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
    fn take(&mut self, byte: u8) {
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
        let begins = self.key.is_some_and(|key| key.is(b"delta") || key.is(b"message"));
        if self.counted_from.is_none() && begins {
            self.counted_from = Some(self.depth);
        }
        self.key = None;
    }

    fn close(&mut self) {
        self.settle_string();
        if self.counted_from == Some(self.depth) {
            self.counted_from = None;
        }
        self.depth = self.depth.saturating_sub(1);
        self.key = None;
    }

    const fn grow(&mut self, bytes: u64) {
        self.string_bytes = self.string_bytes.saturating_add(bytes);
    }

    /// The last string was a value: counts it.
    fn settle_string(&mut self) {
        self.total = self.total.saturating_add(self.uncounted());
        self.string_bytes = 0;
    }

    fn uncounted(&self) -> u64 {
        let framing = self.key.is_some_and(|key| FRAMING_KEYS.iter().any(|name| key.is(name)));
        if self.counted_from.is_some() && !framing { self.string_bytes } else { 0 }
    }

    /// A new event begins; what the last one left open was content as far as it goes.
    fn restart(&mut self) {
        self.settle_string();
        *self = Self { total: self.total, ..Self::default() };
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
        let mut counter = ContentCounter::for_events();
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
    fn a_plain_body_may_have_line_breaks() {
        let body = b"{\n \"choices\": [ {\n \"message\": {\n \"role\": \"assistant\",\n \"content\": \"four\"\n} } ] }";
        let mut counter = ContentCounter::for_body();
        for byte in body {
            counter.push(&[*byte]);
        }
        assert_eq!(counter.total(), 4);
    }
}
