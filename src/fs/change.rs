//! Options that all changes of a file have.

use std::path::{Path, PathBuf};

use super::durability::Durability;
use super::error::Result;
use super::preserve::Attributes;
use super::target::Target;
use crate::sys::status::Statx;

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
}
