//! Decoders that take the bytes as they come.

use std::io::{self, Write};

use brotli::enc::StandardAlloc;
use brotli::{BrotliResult, BrotliState};
use millstream::body::ContentCoding;

pub(crate) const ALL: [ContentCoding; 3] = [ContentCoding::Brotli, ContentCoding::Zstd, ContentCoding::Gzip];

/// A decoder, and what it has decoded so far.
pub(crate) enum Decoder {
    /// Its writer keeps output back, so this is the decoder itself.
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>, Vec<u8>),
    Zstd(zstd::stream::write::Decoder<'static, Vec<u8>>),
    Gzip(Box<flate2::write::GzDecoder<Vec<u8>>>),
    Plain(Vec<u8>),
}

impl Decoder {
    pub(crate) fn new(coding: ContentCoding) -> Self {
        match coding {
            ContentCoding::Brotli => {
                let [a, b, c] = std::array::from_fn(|_| StandardAlloc::default());
                Self::Brotli(Box::new(BrotliState::new(a, b, c)), Vec::new())
            }
            ContentCoding::Zstd => Self::Zstd(zstd::stream::write::Decoder::new(Vec::new()).unwrap()),
            ContentCoding::Gzip => Self::Gzip(Box::new(flate2::write::GzDecoder::new(Vec::new()))),
            other => panic!("a coding without a decoder: {other}"),
        }
    }

    /// Returns the decoder for a `Content-Encoding`.
    pub(crate) fn of(name: Option<&str>) -> Self {
        let Some(name) = name else { return Self::Plain(Vec::new()) };
        Self::new(ALL.into_iter().find(|coding| coding.name() == name).expect("a known coding"))
    }

    /// Decodes all that can be decoded now, and returns all that was decoded so far.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> &[u8] {
        let written = match self {
            Self::Brotli(state, decoded) => {
                let (mut left, mut read, mut buf) = (bytes.len(), 0, [0; 4096]);
                loop {
                    let (mut room, mut written) = (buf.len(), 0);
                    let result = brotli::BrotliDecompressStream(
                        &mut left,
                        &mut read,
                        bytes,
                        &mut room,
                        &mut written,
                        &mut buf,
                        &mut 0,
                        state,
                    );
                    decoded.extend_from_slice(&buf[..written]);
                    match result {
                        BrotliResult::NeedsMoreOutput => {}
                        BrotliResult::NeedsMoreInput if room == 0 => {}
                        BrotliResult::ResultFailure => break Err(io::ErrorKind::InvalidData.into()),
                        BrotliResult::NeedsMoreInput | BrotliResult::ResultSuccess => break Ok(()),
                    }
                }
            }
            Self::Zstd(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
            Self::Gzip(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
            Self::Plain(decoded) => decoded.write_all(bytes),
        };
        written.expect("valid bytes");
        self.decoded()
    }

    pub(crate) fn decoded(&self) -> &[u8] {
        match self {
            Self::Brotli(_, decoded) => decoded,
            Self::Zstd(decoder) => decoder.get_ref(),
            Self::Gzip(decoder) => decoder.get_ref(),
            Self::Plain(decoded) => decoded,
        }
    }
}

/// Decodes a whole body.
///
/// # Errors
///
/// Fails if the body lacks the end of the coding, or something follows it.
pub(crate) fn whole(coding: ContentCoding, bytes: &[u8]) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut decoded = Vec::new();
    match coding {
        ContentCoding::Brotli => {
            let mut rest = bytes;
            brotli::Decompressor::new(&mut rest, 4096).read_to_end(&mut decoded)?;
        }
        ContentCoding::Zstd => decoded = zstd::stream::decode_all(bytes)?,
        ContentCoding::Gzip => {
            let mut decoder = flate2::bufread::GzDecoder::new(bytes);
            decoder.read_to_end(&mut decoded)?;
            if !decoder.into_inner().is_empty() {
                return Err(io::Error::other("bytes after the end"));
            }
        }
        other => panic!("a coding without a decoder: {other}"),
    }
    Ok(decoded)
}
