//! The encoders of the content codings, which take input and give output in steps.

use std::fmt;

use brotli::enc::StandardAlloc;
use brotli::enc::encode::{BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct};
use flate2::{Compression, FlushCompress, Status};
use zstd::stream::raw::{CParameter, InBuffer, Operation as _, OutBuffer};

use crate::body::ContentCoding;

/// Base 2 logarithms of the window of each coding, which bounds the memory of an encoder.
const GZIP_WINDOW: u8 = 15;
const BROTLI_WINDOW: u32 = 17;
const ZSTD_WINDOW: u32 = 17;

/// From this level on, zstd's tables would be larger than the window needs.
const ZSTD_LARGE: u32 = 4;

/// How an encoder treats its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Takes it, and may hold it back.
    Process,
    /// Puts out all that it holds back, so that it can be decoded.
    Flush,
    /// Ends the coding.
    Finish,
}

/// The progress of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct EncoderStep {
    pub(super) read: usize,
    pub(super) written: usize,
    /// Whether the operation is complete. Otherwise it continues with more room for output.
    pub(super) done: bool,
}

pub(super) enum Encoder {
    Gzip(flate2::Compress),
    /// Boxed, because it is large.
    Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>),
    Zstd(zstd::stream::raw::Encoder<'static>),
}

impl Encoder {
    /// Creates the encoder of a coding, at a `level` of 1 to 9.
    ///
    /// # Panics
    ///
    /// If memory is exhausted.
    pub(super) fn new(coding: ContentCoding, level: u32) -> Self {
        match coding {
            ContentCoding::Gzip => Self::Gzip(flate2::Compress::new_gzip(Compression::new(level), GZIP_WINDOW)),
            ContentCoding::Brotli => {
                let mut state = Box::new(BrotliEncoderStateStruct::new(StandardAlloc::default()));
                state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_QUALITY, level);
                state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_LGWIN, BROTLI_WINDOW);
                Self::Brotli(state)
            }
            ContentCoding::Zstd => {
                let new = || {
                    let mut encoder = zstd::stream::raw::Encoder::new(level as i32)?;
                    encoder.set_parameter(CParameter::WindowLog(ZSTD_WINDOW))?;
                    if level >= ZSTD_LARGE {
                        encoder.set_parameter(CParameter::HashLog(ZSTD_WINDOW))?;
                        encoder.set_parameter(CParameter::ChainLog(ZSTD_WINDOW))?;
                    }
                    Ok::<_, std::io::Error>(encoder)
                };
                Self::Zstd(new().expect("out of memory"))
            }
        }
    }

    /// Takes from `input`, and writes to `output`. A flush and the end take no input.
    ///
    /// # Panics
    ///
    /// If memory is exhausted.
    pub(super) fn step(&mut self, op: Op, input: &[u8], output: &mut [u8]) -> EncoderStep {
        match self {
            Self::Gzip(deflate) => gzip(deflate, op, input, output),
            Self::Brotli(state) => brotli(state, op, input, output),
            Self::Zstd(encoder) => zstd(encoder, op, input, output).expect("out of memory"),
        }
    }
}

fn gzip(deflate: &mut flate2::Compress, op: Op, input: &[u8], output: &mut [u8]) -> EncoderStep {
    let flush = match op {
        Op::Process => FlushCompress::None,
        Op::Flush => FlushCompress::Sync,
        Op::Finish => FlushCompress::Finish,
    };
    let (read, written) = (deflate.total_in(), deflate.total_out());
    let status = deflate.compress(input, output, flush).expect("internal: the state of the encoder is valid");
    let (read, written) = ((deflate.total_in() - read) as usize, (deflate.total_out() - written) as usize);
    let done = match op {
        Op::Process => read == input.len(),
        // A flush of deflate is complete once it leaves room in the output buffer.
        Op::Flush => written < output.len(),
        Op::Finish => status == Status::StreamEnd,
    };
    EncoderStep { read, written, done }
}

fn brotli(state: &mut BrotliEncoderStateStruct<StandardAlloc>, op: Op, input: &[u8], output: &mut [u8]) -> EncoderStep {
    let operation = match op {
        Op::Process => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
        Op::Flush => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
        Op::Finish => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
    };
    let (mut left, mut room, mut read, mut written) = (input.len(), output.len(), 0, 0);
    let valid = state.compress_stream(
        operation,
        &mut left,
        input,
        &mut read,
        &mut room,
        output,
        &mut written,
        &mut None,
        &mut |_, _, _, _| (),
    );
    assert!(valid, "internal: the state of the encoder is valid");
    let done = match op {
        Op::Process => left == 0,
        Op::Flush => !state.has_more_output(),
        Op::Finish => state.is_finished(),
    };
    EncoderStep { read, written, done }
}

fn zstd(
    encoder: &mut zstd::stream::raw::Encoder<'static>,
    op: Op,
    input: &[u8],
    output: &mut [u8],
) -> std::io::Result<EncoderStep> {
    let mut from = InBuffer::around(input);
    let mut to = OutBuffer::around(output);
    let done = match op {
        Op::Process => {
            encoder.run(&mut from, &mut to)?;
            from.pos() == input.len()
        }
        Op::Flush => encoder.flush(&mut to)? == 0,
        Op::Finish => encoder.finish(&mut to, false)? == 0,
    };
    Ok(EncoderStep { read: from.pos(), written: to.pos(), done })
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip(_) => "Gzip",
            Self::Brotli(_) => "Brotli",
            Self::Zstd(_) => "Zstd",
        })
    }
}
