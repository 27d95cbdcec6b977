//! Answers of the upstream, which follow from the path of a request: `/KIND/TAG/LEN/MILLIS`.

use testkit::sim::bytes_of;

/// How the upstream answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A body at once.
    Fixed,
    /// A body in pieces.
    Pieces,
    /// A small body after a time.
    Late,
    /// A body behind interim responses.
    Interim,
    /// A small body once the body of the request was read.
    Upload,
    /// 413, without reading the body of the request.
    Early,
    /// No answer.
    Silent,
    /// A part of a body.
    Stall,
    /// The end of the connection or of the stream before an answer.
    Cut,
    /// The same, within the body.
    Torn,
    /// Something that is not a response.
    Garbage,
    /// A body whose end is that of the connection.
    Closing,
    /// A body, after the stream was refused.
    Refused,
    /// 101, and the protocol of [`tunnel`](crate::tunnel).
    Tunnel,
    /// For a target without a path.
    Root,
}

const NAMES: &[(Kind, &str)] = &[
    (Kind::Fixed, "fixed"),
    (Kind::Pieces, "pieces"),
    (Kind::Late, "late"),
    (Kind::Interim, "interim"),
    (Kind::Upload, "upload"),
    (Kind::Early, "early"),
    (Kind::Silent, "silent"),
    (Kind::Stall, "stall"),
    (Kind::Cut, "cut"),
    (Kind::Torn, "torn"),
    (Kind::Garbage, "garbage"),
    (Kind::Closing, "closing"),
    (Kind::Refused, "refused"),
    (Kind::Tunnel, "tunnel"),
    (Kind::Root, ""),
];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        NAMES.iter().find(|(kind, _)| *kind == self).expect("a name for each kind").1
    }

    pub(crate) fn has_upload(self) -> bool {
        matches!(self, Self::Upload | Self::Early)
    }
}

/// What a request asks the upstream for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) tag: u64,
    /// The length of the body of the response.
    pub(crate) len: u64,
    pub(crate) millis: u64,
}

impl Target {
    pub(crate) fn path(&self) -> String {
        match self.kind {
            Kind::Root => "/".to_owned(),
            kind => format!("/{}/{}/{}/{}", kind.name(), self.tag, self.len, self.millis),
        }
    }

    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix('/')?.split('/');
        let name = parts.next()?;
        let kind = NAMES.iter().find(|(_, known)| *known == name)?.0;
        let mut number = || parts.next().map_or(Some(0), |part| part.parse().ok());
        Some(Self { kind, tag: number()?, len: number()?, millis: number()? })
    }

    pub(crate) fn status(&self) -> u16 {
        if self.kind == Kind::Early { 413 } else { 200 }
    }

    /// The body of the response.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        bytes_of(self.tag, self.len as usize)
    }

    /// Returns the pieces of the body, and the milliseconds before each.
    pub(crate) fn pieces(&self) -> Vec<(u64, Vec<u8>)> {
        let bytes = self.bytes();
        match self.kind {
            Kind::Late => vec![(self.millis, bytes)],
            Kind::Pieces | Kind::Closing => {
                let count = 6;
                let piece = bytes.len().div_ceil(count).max(1);
                bytes.chunks(piece).map(|piece| (self.millis / count as u64, piece.to_vec())).collect()
            }
            Kind::Stall | Kind::Torn => vec![(0, bytes[..bytes.len() / 2].to_vec())],
            _ => vec![(0, bytes)],
        }
    }
}
