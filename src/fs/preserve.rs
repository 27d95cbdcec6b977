//! Attributes that a new file takes over from the replaced one.

use std::ffi::CStr;
use std::io;

use super::error::{Result, Step};
use super::target::Target;
use crate::sys::fd::BorrowedFd;
use crate::sys::status::Statx;
use crate::sys::{call, file};

/// Attributes that a new file takes over from the replaced one. No effect if no file is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preserve {
    /// Permission bits, owner, group and extended attributes, including access control lists and security labels. If
    /// this process may not set or read one of them, the operation fails and the old file stays. On other systems than
    /// Linux, extended attributes and access control lists are not kept; on Windows, nothing is.
    #[default]
    All,
    /// Same as `All`, but refused metadata is skipped. Without the owner or the group, the setuid and setgid bits are
    /// skipped too.
    Possible,
    /// Nothing: the file is created as if there were no old file.
    Nothing,
}

pub(super) const MODE_NEW: u32 = 0o666;
const MODE_TEMP: u32 = 0o600;

/// Attributes that describe the contents; the kernel creates them for the new file.
const OF_CONTENTS: [&[u8]; 2] = [b"security.ima", b"security.evm"];
/// A default access control list of the directory sets this attribute on new files.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

#[derive(Clone, Copy, Debug)]
pub(super) struct Old<'a> {
    pub(super) statx: &'a Statx,
    pub(super) fd: Option<BorrowedFd<'a>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attributes {
    pub(super) keep: Preserve,
    /// Exact permission bits, instead of those of the old file.
    pub(super) mode: Option<u32>,
}

impl Attributes {
    /// Returns the mode with which the temporary file is created: private if the final mode may deny access to other
    /// users.
    pub(super) fn temp_mode(&self, replaces: bool) -> u32 {
        let as_new = self.mode.is_none() && (!replaces || self.keep == Preserve::Nothing);
        if as_new { MODE_NEW } else { MODE_TEMP }
    }

    /// Sets the metadata of `new`. The order matters: a change of owner clears the setuid bits and file capabilities,
    /// and the permissions are set last so that none are granted to the wrong owner.
    pub(super) fn apply(&self, target: &Target, old: Option<Old<'_>>, new: BorrowedFd<'_>) -> Result<()> {
        let old = old.filter(|_| self.keep != Preserve::Nothing);
        let must = self.keep == Preserve::All;
        let mut mode = self.mode;
        if let Some(old) = old {
            let kept = keep_owner(old.statx, new, must).map_err(target.at(Step::KeepOwner))?;
            if let Some(fd) = old.fd {
                keep_attributes(fd, new, must).map_err(target.at(Step::KeepAttributes))?;
            }
            let bits = u32::from(old.statx.stx_mode) & if kept { 0o7777 } else { 0o1777 };
            mode = mode.or(Some(bits));
        }
        match mode {
            Some(mode) => file::set_mode(new, mode).map_err(target.at(Step::SetMode)),
            None => Ok(()),
        }
    }
}

/// Sets owner and group of the old file on the new one. Returns whether both are set; a refusal is an error if `must`.
fn keep_owner(old: &Statx, new: BorrowedFd<'_>, must: bool) -> io::Result<bool> {
    let now = call::status(new)?;
    let user = Some(old.stx_uid).filter(|&user| user != now.stx_uid);
    let group = Some(old.stx_gid).filter(|&group| group != now.stx_gid);
    if user.is_none() && group.is_none() {
        return Ok(true);
    }
    match file::set_owner(new, user, group) {
        Ok(()) => Ok(true),
        Err(e) if must => Err(e),
        Err(_) => {
            // Members of a group may set it without the owner.
            let _ = file::set_owner(new, None, group);
            Ok(false)
        }
    }
}

fn keep_attributes(old: BorrowedFd<'_>, new: BorrowedFd<'_>, must: bool) -> io::Result<()> {
    let refused = |e: io::Error| if must { Err(e) } else { Ok(()) };
    let names = match file::attributes(old) {
        Ok(names) => names,
        Err(e) => return refused(e),
    };
    for name in names.iter().filter(|name| !OF_CONTENTS.contains(&name.to_bytes())) {
        keep_attribute(old, new, name).or_else(refused)?;
    }
    for name in file::attributes(new).unwrap_or_default() {
        if name.to_bytes() == ACCESS_LIST && !names.contains(&name) {
            file::set_attribute(new, &name, None).or_else(refused)?;
        }
    }
    Ok(())
}

fn keep_attribute(old: BorrowedFd<'_>, new: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let Some(value) = file::attribute(old, name)? else { return Ok(()) };
    // Few processes may set labels that the kernel assigns; equal values need not be set.
    if file::attribute(new, name).ok().flatten().as_deref() == Some(&value) {
        return Ok(());
    }
    file::set_attribute(new, name, Some(&value))
}
