//! The file system that processes see, and the record of its changes.

use super::image::{Change, Image, Kind, Node, SECTOR};
use super::states::{History, Step};
use super::tree::Tree;
use crate::fuse::session::{ROOT, Status};

pub(super) type Result<T> = std::result::Result<T, i32>;

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;

#[derive(Debug)]
pub(super) struct Recorder {
    /// The names and files on the disk at first.
    base: Image,
    now: Image,
    steps: Vec<Step>,
    next: u64,
}

impl Recorder {
    pub(super) fn new(tree: &Tree) -> Self {
        let base = Image::new(tree);
        let next = ROOT + base.nodes.len() as u64;
        Self { now: base.clone(), base, steps: Vec::new(), next }
    }

    pub(super) fn history(&self) -> History {
        History { base: self.base.clone(), steps: self.steps.clone() }
    }

    pub(super) fn confirm(&mut self, things: u64) {
        self.steps.push(Step::Confirmed(things));
    }

    pub(super) fn sync(&mut self, node: u64, data_only: bool) {
        self.steps.push(Step::Synced { node, data_only });
    }

    fn change(&mut self, changes: Vec<Change>) {
        changes.iter().for_each(|change| self.now.apply(change));
        self.steps.push(Step::Changed(changes));
    }

    pub(super) fn node(&self, node: u64) -> Result<&Node> {
        self.now.nodes.get(&node).ok_or(libc::ENOENT)
    }

    pub(super) fn directory(&self, node: u64) -> Result<&std::collections::BTreeMap<Vec<u8>, u64>> {
        match &self.node(node)?.kind {
            Kind::Directory(names) => Ok(names),
            _ => Err(libc::ENOTDIR),
        }
    }

    pub(super) fn look_up(&self, dir: u64, name: &[u8]) -> Result<u64> {
        self.directory(dir)?.get(name).copied().ok_or(libc::ENOENT)
    }

    pub(super) fn status(&self, number: u64) -> Result<Status> {
        let node = self.node(number)?;
        let (kind, len) = match &node.kind {
            Kind::File { len, .. } => (libc::S_IFREG, *len),
            Kind::Directory(_) => (libc::S_IFDIR, 4096),
            Kind::Link(to) => (libc::S_IFLNK, to.len() as u64),
        };
        let names = self.now.nodes.values().filter_map(|node| match &node.kind {
            Kind::Directory(names) => Some(names.values().filter(|found| **found == number).count()),
            _ => None,
        });
        let links = names.sum::<usize>() as u32 + u32::from(number == ROOT);
        Ok(Status { node: number, len, mode: kind | node.mode, links, owner: node.owner })
    }

    /// Creates a node, with a name unless it is `None`.
    pub(super) fn create(&mut self, dir: u64, name: Option<&[u8]>, node: Node) -> Result<u64> {
        let number = self.next;
        let mut changes = vec![Change::New { node: number, is: Box::new(node) }];
        if let Some(name) = name {
            self.must_be_free(dir, name)?;
            changes.push(Change::Names(vec![(dir, name.to_vec(), Some(number))]));
        }
        self.next += 1;
        self.change(changes);
        Ok(number)
    }

    fn must_be_free(&self, dir: u64, name: &[u8]) -> Result<()> {
        if self.directory(dir)?.contains_key(name) { Err(libc::EEXIST) } else { Ok(()) }
    }

    pub(super) fn link(&mut self, node: u64, dir: u64, name: &[u8]) -> Result<()> {
        self.must_be_free(dir, name)?;
        self.change(vec![Change::Names(vec![(dir, name.to_vec(), Some(node))])]);
        Ok(())
    }

    /// Removes a name. A directory must be empty.
    pub(super) fn unlink(&mut self, dir: u64, name: &[u8]) -> Result<()> {
        let node = self.look_up(dir, name)?;
        if self.directory(node).is_ok_and(|names| !names.is_empty()) {
            return Err(libc::ENOTEMPTY);
        }
        self.change(vec![Change::Names(vec![(dir, name.to_vec(), None)])]);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Result<()> {
        let node = self.look_up(from.0, from.1)?;
        let other = match flags {
            0 => None,
            RENAME_NOREPLACE => self.must_be_free(to.0, to.1).map(|()| None)?,
            RENAME_EXCHANGE => Some(self.look_up(to.0, to.1)?),
            _ => return Err(libc::EINVAL),
        };
        let names = vec![(from.0, from.1.to_vec(), other), (to.0, to.1.to_vec(), Some(node))];
        self.change(vec![Change::Names(names)]);
        Ok(())
    }

    /// Writes bytes, sector by sector, and then the new length.
    pub(super) fn write(&mut self, node: u64, at: u64, bytes: &[u8]) -> Result<()> {
        let Kind::File { len, .. } = self.node(node)?.kind else { return Err(libc::EISDIR) };
        let (mut changes, mut from, end) = (Vec::new(), at, at + bytes.len() as u64);
        while from < end {
            let to = end.min((from / SECTOR + 1) * SECTOR);
            let bytes = bytes[(from - at) as usize..(to - at) as usize].to_vec();
            changes.push(Change::Bytes { node, at: from, bytes });
            from = to;
        }
        if end > len {
            changes.push(Change::Len { node, len: end });
        }
        self.change(changes);
        Ok(())
    }

    /// Allocates space, which changes nothing but the length.
    pub(super) fn allocate(&mut self, node: u64, end: u64, keeps_len: bool) -> Result<()> {
        match self.node(node)?.kind {
            Kind::File { len, .. } if end > len && !keeps_len => self.change(vec![Change::Len { node, len: end }]),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn set_status(
        &mut self,
        node: u64,
        len: Option<u64>,
        mode: Option<u32>,
        (user, group): (Option<u32>, Option<u32>),
    ) -> Result<()> {
        let owner = self.node(node)?.owner;
        let new = (user.unwrap_or(owner.0), group.unwrap_or(owner.1));
        let changes: Vec<_> = [
            len.map(|len| Change::Len { node, len }),
            mode.map(|mode| Change::Mode { node, mode: mode & 0o7777 }),
            (new != owner).then_some(Change::Owner { node, owner: new }),
        ]
        .into_iter()
        .flatten()
        .collect();
        // Times are not recorded.
        if !changes.is_empty() {
            self.change(changes);
        }
        Ok(())
    }

    pub(super) fn set_attribute(&mut self, node: u64, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        if value.is_none() && !self.node(node)?.attributes.contains_key(name) {
            return Err(libc::ENODATA);
        }
        self.change(vec![Change::Attribute { node, name: name.to_vec(), value: value.map(<[u8]>::to_vec) }]);
        Ok(())
    }
}
