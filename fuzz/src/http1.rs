//! A strict parser of HTTP/1 responses, for the bytes that a server has sent.

/// A response as it was received.
#[derive(Debug)]
pub struct Message {
    pub status: u16,
    fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the bytes ended in its body.
    pub cut: bool,
}

impl Message {
    /// Returns the value of a field, which must not come twice.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(found, _)| found == name).map(|(_, value)| &**value);
        let value = values.next();
        assert!(values.next().is_none(), "two fields {name}: {self:?}");
        value
    }

    fn has(&self, name: &str, word: &str) -> bool {
        self.fields
            .iter()
            .filter(|(found, _)| found == name)
            .any(|(_, value)| value.split(',').any(|found| found.trim().eq_ignore_ascii_case(word)))
    }
}

/// Splits the bytes of a connection into responses, without interim ones.
///
/// A response to `HEAD` must have the field `x-head`. The last body may be cut, which is how a server says that it has
/// failed.
///
/// # Panics
///
/// If the bytes are not a sequence of responses.
pub fn responses(mut bytes: &[u8]) -> Vec<Message> {
    let all = bytes;
    let mut found: Vec<Message> = Vec::new();
    while !bytes.is_empty() {
        let wrong = |why: &str| -> ! { panic!("{why}: {:?}", String::from_utf8_lossy(all)) };
        if found.last().is_some_and(|last| last.has("connection", "close")) {
            wrong("bytes behind the last response");
        }
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or_else(|| wrong("a head without end"));
        let mut message = head(&bytes[..end]).unwrap_or_else(|| wrong("an invalid head"));
        bytes = &bytes[end + 4..];
        if message.status < 200 {
            if message.status == 101 {
                wrong("an upgrade that nobody has asked for");
            }
            continue;
        }
        let length = message.field("content-length").map(str::to_owned);
        let chunked = message.field("transfer-encoding").map(|coding| coding == "chunked");
        if length.is_some() && chunked.is_some() {
            wrong("two lengths");
        }
        let without = matches!(message.status, 204 | 304) || message.field("x-head").is_some();
        match (length, chunked) {
            _ if without => {}
            (Some(length), _) => {
                if !length.bytes().all(|b| b.is_ascii_digit()) {
                    wrong("a length that is no number");
                }
                let length: usize = length.parse().unwrap_or_else(|_| wrong("an absurd length"));
                // An error of the server itself, which does not know the field `x-head`.
                let is_head = message.status >= 400 && bytes.starts_with(b"HTTP/1.");
                let taken = if is_head { 0 } else { length.min(bytes.len()) };
                message.cut = taken < length && !is_head;
                message.body = bytes[..taken].to_vec();
                bytes = &bytes[taken..];
            }
            (None, Some(true)) => match chunks(bytes) {
                Ok((body, len)) => {
                    message.body = body;
                    bytes = &bytes[len..];
                }
                Err(true) => {
                    message.cut = true;
                    bytes = &[];
                }
                Err(false) => wrong("invalid chunks"),
            },
            (None, Some(false)) => wrong("an unknown transfer coding"),
            (None, None) => message.body = std::mem::take(&mut bytes).to_vec(),
        }
        found.push(message);
    }
    found
}

fn head(bytes: &[u8]) -> Option<Message> {
    // Values may have any bytes above 0x7f.
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split("\r\n");
    let (version, rest) = lines.next()?.split_once(' ')?;
    let (status, reason) = rest.split_once(' ')?;
    let is_status = status.len() == 3 && status.bytes().all(|b| b.is_ascii_digit());
    if !matches!(version, "HTTP/1.0" | "HTTP/1.1") || !is_status || !is_text(reason) {
        return None;
    }
    let fields = lines.map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_name =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
        (is_name && is_text(value)).then(|| (name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    let fields = fields.collect::<Option<_>>()?;
    Some(Message { status: status.parse().ok()?, fields, body: Vec::new(), cut: false })
}

fn is_text(value: &str) -> bool {
    value.bytes().all(|b| b == b'\t' || b >= b' ' && b != 0x7f)
}

/// Returns a chunked body and its length with its frame. The error is whether it is cut.
fn chunks(bytes: &[u8]) -> Result<(Vec<u8>, usize), bool> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let Some(end) = rest.windows(2).position(|w| w == b"\r\n") else {
            return Err(rest.iter().all(|b| b.is_ascii_hexdigit() || *b == b'\r'));
        };
        let digits = std::str::from_utf8(&rest[..end]).map_err(|_| false)?;
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(false);
        }
        let len = usize::from_str_radix(digits, 16).map_err(|_| false)?;
        at += end + 2;
        if len == 0 {
            break;
        }
        let rest = &bytes[at..];
        if rest.len() < len + 2 {
            return Err(true);
        }
        if rest[len..len + 2] != *b"\r\n" {
            return Err(false);
        }
        body.extend_from_slice(&rest[..len]);
        at += len + 2;
    }
    // The trailer section.
    loop {
        let rest = &bytes[at..];
        let end = rest.windows(2).position(|w| w == b"\r\n").ok_or(true)?;
        at += end + 2;
        if end == 0 {
            return Ok((body, at));
        }
    }
}
