//! Whether a JSON document that is too large to keep came whole.

/// Follows brackets and strings of one JSON object or array. It does not validate: it tells a document that was cut from
/// one that was not.
#[derive(Debug, Default)]
pub(crate) struct DocumentTracker {
    depth: u64,
    in_string: bool,
    escaped: bool,
    opened: bool,
}

impl DocumentTracker {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.escaped {
                self.escaped = false;
            } else if self.in_string {
                match byte {
                    b'"' => self.in_string = false,
                    b'\\' => self.escaped = true,
                    _ => {}
                }
            } else {
                self.take_structure(byte);
            }
        }
    }

    const fn take_structure(&mut self, byte: u8) {
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                self.opened = true;
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// The document was opened, and everything that was opened is closed.
    pub(crate) const fn is_whole(&self) -> bool {
        self.opened && self.depth == 0 && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_document_is_whole() {
        let document = br#"{"a":"}\"","b":[1,{"c":"\\"}],"d":"]"}"#;
        for cut in 0..=document.len() {
            let mut tracker = DocumentTracker::default();
            let (head, tail) = document[..cut].split_at(cut / 2);
            tracker.push(head);
            tracker.push(tail);
            assert_eq!(tracker.is_whole(), cut == document.len(), "{cut}");
        }
    }
}
