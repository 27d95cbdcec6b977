//! Events without a compressed form: the feature `compress` is off.

use std::sync::Arc;

use bytes::Bytes;

use super::piece::{Piece, Sum};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {}

#[derive(Debug)]
pub(super) enum Part {}

impl Slot {
    pub(super) fn part(&mut self, _: &Bytes) -> Part {
        unreachable!("no reader has a compressed stream")
    }
}

/// There is none.
#[derive(Debug)]
pub(super) enum Deflater {}

impl Deflater {
    pub(super) fn new(_: u32) -> Self {
        unreachable!("no hub compresses")
    }

    pub(super) fn events(&self) -> u64 {
        match *self {}
    }

    pub(super) fn join(&self, _: (u64, u64), _: &[Part]) -> Piece {
        match *self {}
    }

    pub(super) fn deflate(&self, _: &[u8]) -> Piece {
        match *self {}
    }

    pub(super) fn comment(&self, _: &[u8]) -> Piece {
        match *self {}
    }
}

/// There is none.
#[derive(Debug)]
pub(super) enum Gzip {}

impl Gzip {
    pub(super) fn new(deflater: &Arc<Deflater>) -> Self {
        match **deflater {}
    }

    pub(super) fn deflater(&self) -> &Deflater {
        match *self {}
    }

    pub(super) fn begin(&mut self) -> Option<Bytes> {
        match *self {}
    }

    pub(super) fn head_len(&self) -> usize {
        match *self {}
    }

    pub(super) fn add(&mut self, _: Sum) {
        match *self {}
    }

    pub(super) fn end(&mut self, _: &[u8]) -> Bytes {
        match *self {}
    }
}
