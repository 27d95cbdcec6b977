//! Options shared by all changes of a file.

use std::io;
use std::path::{Path, PathBuf};

use super::durability::Durability;
use super::error::{Result, Step};
use super::preserve::Attributes;
use super::target::Target;
use crate::sys::fd::OwnedFd;
use crate::sys::file;
use crate::sys::file::Access;
use crate::sys::status::Statx;

/// Number of attempts to open a file that others create and remove.
const RACES: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) path: PathBuf,
    pub(super) durability: Durability,
    pub(super) follow_link: bool,
    pub(super) attributes: Attributes,
}

impl Change {
    pub(super) fn new(path: &Path) -> Self {
        let path = path.to_owned();
        Self { path, durability: Durability::default(), follow_link: false, attributes: Attributes::default() }
    }

    /// Opens the target: see [`Target::open`].
    pub(super) fn target(&self) -> Result<(Target, Option<Statx>)> {
        Target::open(&self.path, self.follow_link)
    }

    /// Opens the file, or creates it with the permissions `mode` less the umask. Also returns whether it was created.
    /// Calls `looked` after each look-up.
    pub(super) fn open_or_create(
        &self,
        access: Access,
        mode: u32,
        looked: impl Fn(),
    ) -> Result<(Target, OwnedFd, bool)> {
        let mut races = 0;
        loop {
            let (target, found) = self.target()?;
            looked();
            let is_new = found.is_none();
            let opened = match found {
                Some(_) => target.open_old(access).map(|(fd, _)| fd),
                None => file::create_at(target.dir(), target.name(), access, mode).map_err(target.at(Step::Create)),
            };
            match opened {
                Ok(fd) => return Ok((target, fd, is_new)),
                // Another process has just created or removed it.
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) && races < RACES =>
                {
                    races += 1
                }
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_another_makes_at_the_same_time_is_not_new() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let change = Change::new(&path);
        let by_another = || drop(std::fs::File::options().append(true).create(true).open(&path).unwrap());
        let (_, _, is_new) = change.open_or_create(Access::Append, 0o666, by_another).unwrap();
        assert!(!is_new);
        std::fs::remove_file(&path).unwrap();
        let (_, _, is_new) = change.open_or_create(Access::Append, 0o666, || {}).unwrap();
        assert!(is_new);
    }
}
