//! The body of a provider's answer about an operation, taken in as it comes. The final form of an operation has all of its
//! output, and may be larger than what is kept of one: what it came to and what it used is read all the same.

use alloc::vec::Vec;
use core::mem;
use memchr::memchr2;

/// The members that are read.
const MEMBERS: [&[u8]; 6] = [b"id", b"status", b"error", b"incomplete_details", b"usage", b"output"];

/// A larger member is not read. The ones that count are small.
const MEMBER_MAX_BYTES: usize = 64 << 10;

/// A longer name is none of those that are read.
const NAME_MAX_BYTES: usize = 32;

/// How the body is kept: in pieces, so that nothing large is ever moved.
const PIECE_BYTES: usize = 512 << 10;

/// The body of one answer: all of it up to a bound, and in any case the members that are read.
#[derive(Debug)]
pub struct AnswerBody {
    pieces: Vec<Vec<u8>>,
    max_bytes: u64,
    length: u64,
    excerpt: Excerpt,
}

impl AnswerBody {
    /// An empty body. A larger one than `max_bytes` is read and not kept.
    #[must_use]
    pub fn new(max_bytes: u64) -> Self {
        Self { pieces: Vec::new(), max_bytes, length: 0, excerpt: Excerpt::default() }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.excerpt.push(bytes);
        self.length = self.length.saturating_add(bytes.len() as u64);
        if self.length > self.max_bytes {
            self.pieces = Vec::new();
            return;
        }
        match self.pieces.last_mut() {
            Some(last) if last.len().saturating_add(bytes.len()) <= PIECE_BYTES => last.extend_from_slice(bytes),
            _ => self.pieces.push(bytes.to_vec()),
        }
    }

    /// How long it is, in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Whether it is too large to be kept.
    #[must_use]
    pub const fn is_too_large(&self) -> bool {
        self.length > self.max_bytes
    }

    /// An object of the members that are read, as they stood there. Empty as long as the body is no whole object.
    #[must_use]
    pub fn excerpt(&self) -> Vec<u8> {
        self.excerpt.object()
    }

    /// The body, in pieces; none where it is too large.
    #[must_use]
    pub fn into_pieces(self) -> Vec<Vec<u8>> {
        self.pieces
    }
}

/// Finds members of an object in its bytes. It follows brackets and strings, and validates what it finds no further: whoever
/// reads the excerpt does.
#[derive(Debug, Default)]
struct Excerpt {
    depth: u64,
    in_string: bool,
    escaped: bool,
    /// It is an object, not an array.
    opened: bool,
    /// Something came before or behind the object.
    more: bool,
    name: Vec<u8>,
    value: Option<Vec<u8>>,
    members: Vec<u8>,
}

impl Excerpt {
    fn push(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            bytes = rest;
            self.take(byte);
            // The most of any body is text, and nothing in it counts.
            if self.in_string && !self.escaped && self.depth > 1 && self.value.is_none() {
                let text = memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
                bytes = bytes.get(text..).unwrap_or_default();
            }
        }
    }

    fn take(&mut self, byte: u8) {
        let outside = !self.in_string && self.depth == 1;
        if self.value.is_some() && outside && matches!(byte, b',' | b'}') {
            self.keep();
        }
        if let Some(value) = &mut self.value
            && value.len() <= MEMBER_MAX_BYTES
        {
            value.push(byte);
        }
        if self.escaped {
            self.escaped = false;
            self.take_name(byte);
        } else if self.in_string {
            match byte {
                b'"' => self.in_string = false,
                b'\\' => self.escaped = true,
                _ => self.take_name(byte),
            }
        } else {
            self.take_structure(byte, outside);
        }
    }

    fn take_structure(&mut self, byte: u8, outside: bool) {
        self.more |= self.depth == 0 && (self.opened || byte != b'{') && !byte.is_ascii_whitespace();
        match byte {
            b'"' => {
                self.in_string = true;
                // A name comes behind a value, never inside of one.
                if self.value.is_none() {
                    self.name.clear();
                }
            }
            b':' if outside && MEMBERS.contains(&self.name.as_slice()) => self.value = Some(Vec::new()),
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                self.opened = true;
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    fn take_name(&mut self, byte: u8) {
        if self.depth == 1 && self.value.is_none() && self.name.len() <= NAME_MAX_BYTES {
            self.name.push(byte);
        }
    }

    /// The value is whole.
    fn keep(&mut self) {
        let Some(value) = self.value.take().filter(|value| value.len() <= MEMBER_MAX_BYTES) else { return };
        let name = mem::take(&mut self.name);
        self.members.extend_from_slice(if self.members.is_empty() { b"{\"" } else { b",\"" });
        self.members.extend_from_slice(&name);
        self.members.extend_from_slice(b"\":");
        self.members.extend(value);
    }

    fn object(&self) -> Vec<u8> {
        let whole = self.opened && self.depth == 0 && !self.in_string && !self.more;
        if !whole {
            return Vec::new();
        }
        let mut object = if self.members.is_empty() { b"{".to_vec() } else { self.members.clone() };
        object.push(b'}');
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec;

    fn excerpt(body: &str, width: usize) -> String {
        let mut taken = AnswerBody::new(u64::MAX);
        body.as_bytes().chunks(width).for_each(|piece| taken.push(piece));
        assert_eq!(taken.length(), body.len() as u64);
        let excerpt = taken.excerpt();
        assert_eq!(taken.into_pieces().concat(), body.as_bytes());
        String::from_utf8(excerpt).unwrap()
    }

    #[test]
    fn members_are_taken_as_they_stand_there() {
        for (body, expected) in [
            ("{}", "{}"),
            (" {\n} \n", "{}"),
            (r#"{"id":"r"}"#, r#"{"id":"r"}"#),
            (r#"{ "status" : "x,}\"" , "id":7}"#, r#"{"status": "x,}\"" ,"id":7}"#),
            (r#"{"a":{"id":1,"status":[{"id":2}]},"b":["id",":"],"c":"\"id\":3","id":4}"#, r#"{"id":4}"#),
            (r#"{"usage":{"id":5,"x":[1,{"y":"}"}]},"text":"id"}"#, r#"{"usage":{"id":5,"x":[1,{"y":"}"}]}}"#),
            (r#"{"output":[],"error":null}"#, r#"{"output":[],"error":null}"#),
            // Twice is for the reader to refuse.
            (r#"{"id":1,"id":2}"#, r#"{"id":1,"id":2}"#),
            (r#"{"id\\":1,"\"id":2,"xid":3,"idx":4}"#, "{}"),
            // No object, or more than one.
            ("", ""),
            ("null", ""),
            ("[]", ""),
            (r#"["id"]"#, ""),
            (r#""id""#, ""),
            (r#"{"id":1}{"id":2}"#, ""),
            (r#"{"id":1},"#, ""),
            (r#"x{"id":1}"#, ""),
        ] {
            for width in [1, 2, 3, 7, 1_000] {
                assert_eq!(excerpt(body, width), expected, "{body} by {width}");
            }
        }
    }

    #[test]
    fn what_was_cut_is_not_read() {
        let body = r#"{"id":"r","a":"\"{","usage":{"x":[1]},"status":"completed"}"#;
        for cut in 0..body.len() {
            assert_eq!(excerpt(body.get(..cut).unwrap(), 5), "", "{cut}");
        }
        assert_eq!(excerpt(body, 5), r#"{"id":"r","usage":{"x":[1]},"status":"completed"}"#);
    }

    #[test]
    fn what_is_too_large_is_read_and_not_kept() {
        let text = "word ".repeat(40_000);
        let body = alloc::format!(r#"{{"id":"r","output":[{{"text":"{text}"}}],"status":"completed"}}"#);
        for (max_bytes, kept) in [(body.len() as u64, true), (body.len() as u64 - 1, false), (0, false)] {
            let mut taken = AnswerBody::new(max_bytes);
            body.as_bytes().chunks(999).for_each(|piece| taken.push(piece));
            assert_eq!(taken.is_too_large(), !kept);
            assert_eq!(
                taken.excerpt(),
                br#"{"id":"r","status":"completed"}"#,
                "a member that is too large is left out"
            );
            assert_eq!(taken.into_pieces().concat(), if kept { body.as_bytes() } else { b"" });
        }
    }

    #[test]
    fn pieces_have_a_bound() {
        let mut taken = AnswerBody::new(u64::MAX);
        for _ in 0..1_300 {
            taken.push(&[b' '; 1_000]);
        }
        let lengths: Vec<usize> = taken.into_pieces().iter().map(Vec::len).collect();
        assert_eq!(lengths, vec![524_000, 524_000, 252_000]);
    }
}
