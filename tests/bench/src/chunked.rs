//! HTTP/1.1 chunked transfer coding, taken off as bytes come.

/// Takes the coding off a body.
#[derive(Debug, Default)]
pub(crate) struct Chunked {
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    SizeStart,
    Size(usize),
    /// Inside a chunk extension, before the line's end.
    Extension(usize),
    SizeLf(usize),
    Data(usize),
    DataCr,
    DataLf,
    /// At the start of a line after the last chunk: a trailer field or the end.
    TrailerStart,
    Trailer,
    EndLf,
    Done,
}

impl Chunked {
    /// Appends the body bytes in `input` to `body`. Says how many bytes of `input` belong to this answer if it ends
    /// there, or `None` if more must come.
    pub(crate) fn push(&mut self, input: &[u8], body: &mut Vec<u8>) -> Result<Option<usize>, String> {
        let mut position = 0;
        while let Some(&byte) = input.get(position) {
            if let State::Data(left) = self.state {
                let count = left.min(input.len() - position);
                body.extend_from_slice(&input[position..position + count]);
                position += count;
                self.state = if count == left { State::DataCr } else { State::Data(left - count) };
                continue;
            }
            position += 1;
            self.state = next(self.state, byte)?;
            if self.state == State::Done {
                return Ok(Some(position));
            }
        }
        Ok(None)
    }
}

fn next(state: State, byte: u8) -> Result<State, String> {
    let digit = char::from(byte).to_digit(16).map(|digit| digit as usize);
    match (state, byte, digit) {
        (State::SizeStart, _, Some(digit)) => Ok(State::Size(digit)),
        (State::Size(size), _, Some(digit)) => {
            let size = size.checked_mul(16).and_then(|size| size.checked_add(digit));
            size.map(State::Size).ok_or_else(|| "a chunk size is too large".to_owned())
        }
        (State::Size(size) | State::Extension(size), b'\r', _) => Ok(State::SizeLf(size)),
        (State::Size(size), b';' | b' ', _) | (State::Extension(size), _, _) => Ok(State::Extension(size)),
        (State::SizeLf(0), b'\n', _) => Ok(State::TrailerStart),
        (State::SizeLf(size), b'\n', _) => Ok(State::Data(size)),
        (State::DataCr, b'\r', _) => Ok(State::DataLf),
        (State::DataLf, b'\n', _) => Ok(State::SizeStart),
        (State::TrailerStart, b'\r', _) => Ok(State::EndLf),
        (State::Trailer, b'\n', _) => Ok(State::TrailerStart),
        (State::TrailerStart | State::Trailer, _, _) => Ok(State::Trailer),
        (State::EndLf, b'\n', _) => Ok(State::Done),
        _ => Err(format!("byte {byte:#04x} in the chunked coding at {state:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODED: &[u8] = b"5\r\nhello\r\n1A;x=\"y\"\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nT: v\r\n\r\nNEXT";
    const BODY: &[u8] = b"helloabcdefghijklmnopqrstuvwxyz";

    #[test]
    fn any_cut_gives_the_same_body() {
        let end = CODED.len() - 4;
        for cut in 0..end {
            let (mut chunked, mut body) = (Chunked::default(), Vec::new());
            assert_eq!(chunked.push(&CODED[..cut], &mut body).unwrap(), None, "{cut}");
            assert_eq!(chunked.push(&CODED[cut..], &mut body).unwrap(), Some(end - cut), "{cut}");
            assert_eq!(body, BODY, "{cut}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for coded in [&b"\r\n"[..], b"x\r\n", b"2\r\nabc\r\n", b"1\n", b"fffffffffffffffff\r\n", b"0\r\n\rx"] {
            assert!(Chunked::default().push(coded, &mut Vec::new()).is_err(), "{coded:?}");
        }
    }
}
