//! Where a request ends, byte by byte, for those that say it in one way only (RFC 9112 §6.3, §11.2).
//!
//! hyper reads by Transfer-Encoding and forgets a Content-Length beside it, and takes a bare LF for a line's end. A proxy
//! in front of us may read the same bytes the other way, and what it takes for a body would be a request here. So
//! whatever can be read in two ways is refused, before hyper sees the end of its line.

/// More of a line is not kept. A length or an encoding that needs more is refused.
const KEPT: usize = 256;

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ambiguity {
    /// A CR or a LF that is not part of a CRLF.
    LineEnd,
    /// A header that goes on in the next line.
    FoldedHeader,
    /// A length that is no number, or a second one, be it the same.
    Length,
    /// An encoding other than chunked, or a second one.
    Encoding,
    /// A length beside an encoding.
    LengthAndEncoding,
    /// Chunks that do not say where they end.
    Chunk,
}

impl Ambiguity {
    /// Its name in numbers and logs.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::LineEnd => "line_end",
            Self::FoldedHeader => "folded_header",
            Self::Length => "length",
            Self::Encoding => "encoding",
            Self::LengthAndEncoding => "length_and_encoding",
            Self::Chunk => "chunk",
        }
    }
}

/// Knows where in a request the next byte stands.
pub(super) struct Framing {
    place: Place,
    /// The beginning of the header line that is being read.
    line: Vec<u8>,
    length: Option<u64>,
    is_chunked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the request line; empty lines may come.
    Before,
    RequestLine,
    /// At the beginning of a line of the head, or of the trailers behind the last chunk.
    LineStart {
        trailers: bool,
    },
    Line {
        trailers: bool,
    },
    /// After the CR of a line; then comes what is named.
    LineFeed(Next),
    /// So much of a body, or of a chunk, is left.
    Body(u64),
    ChunkData(u64),
    ChunkEnd,
    ChunkSize {
        digits: u8,
        size: u64,
    },
    ChunkExtension(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Before,
    FirstHeader,
    Header { trailers: bool },
    HeadEnd,
    TrailersEnd,
    Chunk,
    ChunkOf(u64),
}

impl Framing {
    pub(super) fn new() -> Self {
        Self { place: Place::Before, line: Vec::new(), length: None, is_chunked: false }
    }

    /// Reads on; says where in `bytes` they become ambiguous.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<(), (usize, Ambiguity)> {
        let mut at = 0;
        while at < bytes.len() {
            // What is inside a body is nobody's business here.
            if let Place::Body(left) | Place::ChunkData(left) = self.place {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                at += here;
                let left = left - here as u64;
                self.place = match self.place {
                    Place::Body(_) if left == 0 => Place::Before,
                    Place::Body(_) => Place::Body(left),
                    _ if left == 0 => Place::ChunkEnd,
                    _ => Place::ChunkData(left),
                };
                continue;
            }
            self.place = self.step(bytes[at]).map_err(|why| (at, why))?;
            at += 1;
        }
        Ok(())
    }

    fn step(&mut self, byte: u8) -> Result<Place, Ambiguity> {
        use Place as P;
        Ok(match (self.place, byte) {
            (P::LineFeed(next), b'\n') => self.after(next),

            (P::ChunkSize { digits, size }, _) => return chunk_size(digits, size, byte),
            (P::ChunkExtension(size), b'\r') => P::LineFeed(Next::ChunkOf(size)),
            (P::ChunkEnd, b'\r') => P::LineFeed(Next::Chunk),
            (P::ChunkEnd, _) | (P::ChunkExtension(_), b'\n') => return Err(Ambiguity::Chunk),
            (P::ChunkExtension(size), _) => P::ChunkExtension(size),

            (P::LineFeed(_), _) | (_, b'\n') => return Err(Ambiguity::LineEnd),
            (P::Before, b'\r') => P::LineFeed(Next::Before),
            (P::Before, _) => P::RequestLine,
            (P::RequestLine, b'\r') => P::LineFeed(Next::FirstHeader),
            (P::LineStart { trailers: false }, b'\r') => P::LineFeed(Next::HeadEnd),
            (P::LineStart { trailers: true }, b'\r') => P::LineFeed(Next::TrailersEnd),
            (P::LineStart { .. }, b' ' | b'\t') => return Err(Ambiguity::FoldedHeader),
            (P::Line { trailers }, b'\r') => {
                if !trailers {
                    self.read_header()?;
                }
                P::LineFeed(Next::Header { trailers })
            }
            (P::LineStart { trailers } | P::Line { trailers }, byte) => {
                if self.line.len() < KEPT {
                    self.line.push(byte);
                }
                P::Line { trailers }
            }
            (same, _) => same,
        })
    }

    /// After a line's end.
    fn after(&mut self, next: Next) -> Place {
        self.line.clear();
        match next {
            Next::Before | Next::TrailersEnd => Place::Before,
            Next::FirstHeader => {
                (self.length, self.is_chunked) = (None, false);
                Place::LineStart { trailers: false }
            }
            Next::Header { trailers } => Place::LineStart { trailers },
            Next::HeadEnd if self.is_chunked => Place::ChunkSize { digits: 0, size: 0 },
            Next::HeadEnd => self.length.filter(|length| *length > 0).map_or(Place::Before, Place::Body),
            Next::Chunk => Place::ChunkSize { digits: 0, size: 0 },
            Next::ChunkOf(0) => Place::LineStart { trailers: true },
            Next::ChunkOf(size) => Place::ChunkData(size),
        }
    }

    /// A whole header line: does it say where the body ends?
    fn read_header(&mut self) -> Result<(), Ambiguity> {
        let colon = self.line.iter().position(|byte| *byte == b':').unwrap_or(self.line.len());
        let (name, value) = self.line.split_at(colon);
        let (is_length, is_encoding) =
            (name.eq_ignore_ascii_case(b"content-length"), name.eq_ignore_ascii_case(b"transfer-encoding"));
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        let is_whole = self.line.len() < KEPT;
        if is_length {
            let digits = str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
            let length = digits.and_then(|digits| digits.parse().ok());
            if !is_whole || self.length.is_some() || length.is_none() {
                return Err(Ambiguity::Length);
            }
            self.length = length;
        }
        if is_encoding {
            if !is_whole || self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Ambiguity::Encoding);
            }
            self.is_chunked = true;
        }
        if self.is_chunked && self.length.is_some() { Err(Ambiguity::LengthAndEncoding) } else { Ok(()) }
    }
}

/// Hex digits, at least one and no more than a size has.
fn chunk_size(digits: u8, size: u64, byte: u8) -> Result<Place, Ambiguity> {
    let digit = char::from(byte).to_digit(16);
    match (digit, byte) {
        (Some(digit), _) if digits < 15 => {
            Ok(Place::ChunkSize { digits: digits + 1, size: size << 4 | u64::from(digit) })
        }
        (None, b'\r') if digits > 0 => Ok(Place::LineFeed(Next::ChunkOf(size))),
        (None, b';') if digits > 0 => Ok(Place::ChunkExtension(size)),
        _ => Err(Ambiguity::Chunk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "POST / HTTP/1.1\r\nHost: a\r\n";
    const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

    /// Read in two parts, and byte by byte: it makes no difference. Where it ends is said from the beginning.
    fn read(bytes: &[u8]) -> (Result<(), (usize, Ambiguity)>, bool) {
        let mut whole = Framing::new();
        let found = whole.read(bytes);
        for split in 0..=bytes.len() {
            let mut parts = Framing::new();
            let (first, second) = bytes.split_at(split);
            let again =
                parts.read(first).and_then(|()| parts.read(second).map_err(|(at, why)| (split + at, why)));
            assert_eq!(again, found, "split at {split}");
            assert_eq!(parts.place, whole.place, "split at {split}");
        }
        let mut drops = Framing::new();
        let mut each = bytes.iter().enumerate();
        let again = each.try_for_each(|(at, byte)| drops.read(&[*byte]).map_err(|(_, why)| (at, why)));
        assert_eq!(found, again, "byte by byte");
        (found, whole.place == Place::Before)
    }

    #[test]
    fn a_request_that_says_once_where_it_ends_ends_there() {
        for rest in [
            "\r\n".to_owned(),
            "Content-Length: 0\r\n\r\n".to_owned(),
            "content-length:5\r\n\r\n\n\r\n\n\r".to_owned(),
            format!("X: {}\r\nContent-Length: \t 2 \t\r\n\r\nab", "y".repeat(1000)),
            "TRANSFER-encoding: Chunked\r\n\r\n3\r\n\n\r\n\r\n0\r\n\r\n".to_owned(),
            "Transfer-Encoding: chunked\r\n\r\n00A;a=\"b\"\r\n0123456789\r\n0;z\r\nX: y\r\nContent-Length: 9\r\n\r\n"
                .to_owned(),
        ] {
            let one = format!("{HEAD}{rest}");
            assert_eq!(read(one.as_bytes()), (Ok(()), true), "{one:?}");
            // Then the next one begins, perhaps after empty lines.
            let three = format!("{one}{one}\r\n\r\n{one}");
            assert_eq!(read(three.as_bytes()), (Ok(()), true), "{three:?}");
            let bad = format!("{one}GET / HTTP/1.1\n");
            assert_eq!(read(bad.as_bytes()).0, Err((bad.len() - 1, Ambiguity::LineEnd)), "{bad:?}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_found_at_its_first_byte() {
        use Ambiguity as A;
        let long = format!("Content-Length: {}5", " ".repeat(KEPT));
        // Up to the `|` it may still become a request.
        for (bytes, why) in [
            ("|\nGET / HTTP/1.1\r\n".to_owned(), A::LineEnd),
            ("\r|GET / HTTP/1.1\r\n".to_owned(), A::LineEnd),
            ("GET / HTTP/1.1|\nHost: a\r\n\r\n".to_owned(), A::LineEnd),
            ("GET / HTTP/1.1\r|\rHost: a\r\n\r\n".to_owned(), A::LineEnd),
            (format!("{HEAD}X: y|\n\r\n"), A::LineEnd),
            (format!("{HEAD}X: y\r|z\r\n\r\n"), A::LineEnd),
            (format!("{HEAD}|\n"), A::LineEnd),
            (format!("{HEAD}\r|\r\n"), A::LineEnd),
            (format!("{HEAD}X: y\r\n| z\r\n\r\n"), A::FoldedHeader),
            (format!("{HEAD}X: y\r\n|\tz\r\n\r\n"), A::FoldedHeader),
            ("GET / HTTP/1.1\r\n| Host: a\r\n\r\n".to_owned(), A::FoldedHeader),
            (format!("{HEAD}Content-Length: 1\r\nContent-Length: 2|\r\n\r\n"), A::Length),
            (format!("{HEAD}Content-Length: 1\r\nX: y\r\ncontent-length: 1|\r\n\r\n"), A::Length),
            (format!("{HEAD}Content-Length: 1, 1|\r\n\r\n"), A::Length),
            (format!("{HEAD}Content-Length: +1|\r\n\r\n"), A::Length),
            (format!("{HEAD}Content-Length: 0x1|\r\n\r\n"), A::Length),
            (format!("{HEAD}Content-Length:|\r\n\r\n"), A::Length),
            (format!("{HEAD}Content-Length|\r\n\r\n"), A::Length),
            (format!("{HEAD}Content-Length: 18446744073709551616|\r\n\r\n"), A::Length),
            (format!("{HEAD}{long}|\r\n\r\n"), A::Length),
            (format!("{HEAD}Transfer-Encoding: gzip|\r\n\r\n"), A::Encoding),
            (format!("{HEAD}Transfer-Encoding: gzip, chunked|\r\n\r\n"), A::Encoding),
            (format!("{HEAD}Transfer-Encoding: \x0bchunked|\r\n\r\n"), A::Encoding),
            (format!("{HEAD}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked|\r\n\r\n"), A::Encoding),
            (format!("{HEAD}Transfer-Encoding: chunked\r\nContent-Length: 4|\r\n\r\n"), A::LengthAndEncoding),
            (
                format!("{HEAD}Content-Length: 4\r\nX: y\r\nTransfer-Encoding: chunked|\r\n"),
                A::LengthAndEncoding,
            ),
            (format!("{CHUNKED}|\r\n"), A::Chunk),
            (format!("{CHUNKED}|;a\r\n"), A::Chunk),
            (format!("{CHUNKED}|x\r\n"), A::Chunk),
            (format!("{CHUNKED}|-1\r\n"), A::Chunk),
            (format!("{CHUNKED}0|x0\r\n"), A::Chunk),
            (format!("{CHUNKED}1| \r\na\r\n"), A::Chunk),
            (format!("{CHUNKED}000000000000000|0\r\n"), A::Chunk),
            (format!("{CHUNKED}1|\na\r\n"), A::Chunk),
            (format!("{CHUNKED}1;a|\na\r\n"), A::Chunk),
            (format!("{CHUNKED}1\r|a\r\n"), A::LineEnd),
            (format!("{CHUNKED}1\r\na|\n0\r\n"), A::Chunk),
            (format!("{CHUNKED}1\r\na|b\r\n"), A::Chunk),
            (format!("{CHUNKED}0\r\n|\n"), A::LineEnd),
            (format!("{CHUNKED}0\r\nX: y|\n\r\n"), A::LineEnd),
            (format!("{CHUNKED}0\r\nX: y\r\n| z\r\n\r\n"), A::FoldedHeader),
        ] {
            let at = bytes.find('|').expect("it says where");
            let bytes = bytes.replacen('|', "", 1);
            assert_eq!(read(bytes.as_bytes()).0, Err((at, why)), "{bytes:?}");
        }
    }
}
