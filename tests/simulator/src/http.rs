//! HTTP/1.1 requests: head, fixed and chunked bodies, query strings.

use httparse::Status;

const HEADERS_MAX: usize = 128;
const HEAD_MAX_BYTES: usize = 256 * 1024;
/// A request larger than this is a mistake of the test, not a load to survive.
pub(crate) const BODY_MAX_BYTES: usize = 64 * 1024 * 1024;

/// A request that cannot be understood; the text says why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadRequest(pub(crate) String);

/// How the length of a request's body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLength {
    Fixed(usize),
    Chunked,
}

/// The head of a request. Header names are in lower case.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body_length: BodyLength,
    /// The client wants the connection closed after the answer.
    pub(crate) close: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub(crate) expects_continue: bool,
}

impl Head {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        find(&self.query, name)
    }
}

fn find<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let pair = pairs.iter().find(|(key, _)| key == name);
    pair.map(|(_, value)| value.as_str())
}

/// Reads a head; `None` as long as it is not whole. The number is its length.
pub(crate) fn parse_head(input: &[u8]) -> Result<Option<(Head, usize)>, BadRequest> {
    let mut slots = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut slots);
    let length = match parsed.parse(input) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if input.len() > HEAD_MAX_BYTES => {
            return Err(BadRequest("the head is too long".to_owned()));
        }
        Ok(Status::Partial) => return Ok(None),
        Err(error) => return Err(BadRequest(error.to_string())),
    };
    let headers: Vec<(String, String)> = parsed
        .headers
        .iter()
        .map(|header| {
            let value = String::from_utf8_lossy(header.value).into_owned();
            (header.name.to_ascii_lowercase(), value)
        })
        .collect();
    let target = parsed.path.unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let connection = find(&headers, "connection").unwrap_or("").to_ascii_lowercase();
    let keep_alive =
        if parsed.version == Some(1) { !connection.contains("close") } else { connection.contains("keep-alive") };
    let head = Head {
        method: parsed.method.unwrap_or("").to_owned(),
        path: path.to_owned(),
        query: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
        body_length: body_length(&headers)?,
        close: !keep_alive,
        expects_continue: find(&headers, "expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")),
        headers,
    };
    Ok(Some((head, length)))
}

fn body_length(headers: &[(String, String)]) -> Result<BodyLength, BadRequest> {
    if let Some(coding) = find(headers, "transfer-encoding") {
        if coding.eq_ignore_ascii_case("chunked") {
            return Ok(BodyLength::Chunked);
        }
        return Err(BadRequest(format!("transfer-encoding {coding} is not known")));
    }
    match find(headers, "content-length") {
        None => Ok(BodyLength::Fixed(0)),
        Some(value) => match value.parse() {
            Ok(length) if length <= BODY_MAX_BYTES => Ok(BodyLength::Fixed(length)),
            Ok(_) => Err(BadRequest("the body is too long".to_owned())),
            Err(_) => Err(BadRequest(format!("bad content-length {value:?}"))),
        },
    }
}

/// Takes chunks off the front of `input` as far as they are whole, puts their
/// data into `body`, and says whether the last one has been taken.
pub(crate) fn take_chunks(input: &mut Vec<u8>, body: &mut Vec<u8>) -> Result<bool, BadRequest> {
    let mut position = 0;
    let done = loop {
        let (start, size) = match httparse::parse_chunk_size(&input[position..]) {
            Ok(Status::Complete((header, size))) => (position + header, size),
            Ok(Status::Partial) => break false,
            Err(_) => return Err(BadRequest("bad chunk size".to_owned())),
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size.saturating_add(body.len()) > BODY_MAX_BYTES {
            return Err(BadRequest("the body is too long".to_owned()));
        }
        if size == 0 {
            match end_of_trailers(&input[start..])? {
                Some(length) => position = start + length,
                None => break false,
            }
            break true;
        }
        let end = start + size;
        match input.get(end..end + 2) {
            Some(b"\r\n") => body.extend_from_slice(&input[start..end]),
            Some(_) => return Err(BadRequest("a chunk is longer than its size".to_owned())),
            None => break false,
        }
        position = end + 2;
    };
    input.drain(..position);
    Ok(done)
}

fn end_of_trailers(input: &[u8]) -> Result<Option<usize>, BadRequest> {
    let mut slots = [httparse::EMPTY_HEADER; HEADERS_MAX];
    match httparse::parse_headers(input, &mut slots) {
        Ok(Status::Complete((length, _))) => Ok(Some(length)),
        Ok(Status::Partial) => Ok(None),
        Err(error) => Err(BadRequest(error.to_string())),
    }
}

/// The reason phrase of a status.
pub(crate) fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        302 => "Found",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Payload Too Large",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunked_bodies_arrive_in_any_pieces() {
        let whole = b"4\r\nWiki\r\n6;x=y\r\npedia \r\n0\r\nA: b\r\n\r\nGET";
        for cut in 0..whole.len() {
            let mut input = whole[..cut].to_vec();
            let mut body = Vec::new();
            let early = take_chunks(&mut input, &mut body).unwrap();
            input.extend_from_slice(&whole[cut..]);
            assert!(early || take_chunks(&mut input, &mut body).unwrap(), "{cut}");
            assert_eq!(body, b"Wikipedia ");
            assert_eq!(input, b"GET");
        }
    }

    #[test]
    fn bad_framing_is_refused() {
        let mut body = Vec::new();
        assert!(take_chunks(&mut b"zz\r\n".to_vec(), &mut body).is_err());
        assert!(take_chunks(&mut b"1\r\nabc".to_vec(), &mut body).is_err());
        let head = b"POST / HTTP/1.1\r\ncontent-length: 1x\r\n\r\n";
        assert!(parse_head(head).is_err());
    }

    #[test]
    fn the_query_is_decoded() {
        let input = b"GET /__expected?model=gen%3Ftokens%3D3%26tag%3Da&x=1 HTTP/1.1\r\n\r\nrest";
        let (head, length) = parse_head(input).unwrap().unwrap();
        assert_eq!(head.query("model"), Some("gen?tokens=3&tag=a"));
        assert_eq!(head.path, "/__expected");
        assert_eq!(&input[length..], b"rest");
        assert!(!head.close);
    }
}
