//! Events without a compressed form: the feature `compress` is off.

use std::sync::Arc;

use bytes::Bytes;

use super::piece::{Piece, Sum};

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sse) struct Slot {}

#[derive(Debug)]
pub(in crate::sse) enum Part {}

impl Slot {
    pub(in crate::sse) fn part(&mut self, _: &Bytes) -> Part {
        unreachable!("no reader has a compressed stream")
    }
}

/// There is none.
#[derive(Debug)]
pub(in crate::sse) enum Deflater {}

impl Deflater {
    pub(in crate::sse) fn new(_: u32) -> Self {
        unreachable!("no hub compresses")
    }

    pub(in crate::sse) fn events(&self) -> u64 {
        match *self {}
    }

    pub(in crate::sse) fn join(&self, _: (u64, u64), _: &[Part]) -> Piece {
        match *self {}
    }

    pub(in crate::sse) fn deflate(&self, _: &[u8]) -> Piece {
        match *self {}
    }

    pub(in crate::sse) fn comment(&self, _: &[u8]) -> Piece {
        match *self {}
    }
}

/// There is none.
#[derive(Debug)]
pub(in crate::sse) enum Gzip {}

impl Gzip {
    pub(in crate::sse) fn new(deflater: &Arc<Deflater>) -> Self {
        match **deflater {}
    }

    pub(in crate::sse) fn resumed(deflater: &Arc<Deflater>, _: (u32, u32)) -> Self {
        match **deflater {}
    }

    pub(in crate::sse) fn sums(&self) -> (u32, u32) {
        match *self {}
    }

    pub(in crate::sse) fn deflater(&self) -> &Deflater {
        match *self {}
    }

    pub(in crate::sse) fn begin(&mut self) -> Option<Bytes> {
        match *self {}
    }

    pub(in crate::sse) fn head_len(&self) -> usize {
        match *self {}
    }

    pub(in crate::sse) fn add(&mut self, _: Sum) {
        match *self {}
    }

    pub(in crate::sse) fn end(&mut self, _: &[u8]) -> Bytes {
        match *self {}
    }
}
