//! The temporary directory of a run: files that are served, uploads, a certificate.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use measuring::noise;
use tempfile::TempDir;

use super::cell::{Cell, Work};
use crate::load::client;

/// Files of this length are removed after their cell.
const LARGE: u64 = 512 << 20;
/// The longest upload.
const UPLOAD_MAX: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct Site {
    /// Absolute, because servers have other working directories.
    root: PathBuf,
    _dir: TempDir,
}

impl Site {
    /// Makes the directory in `out`, which is on a disk where the one for temporary files may be in memory.
    pub(super) fn new(out: &Path) -> Result<Self, String> {
        let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", out.display());
        let dir = tempfile::Builder::new().prefix("site-").tempdir_in(out).map_err(|e| wrong(&e))?;
        let root = dir.path().canonicalize().map_err(|e| wrong(&e))?;
        let site = Self { root, _dir: dir };
        for sub in [site.files(), site.uploads(), site.tls()] {
            fs::create_dir_all(&sub).map_err(|e| wrong(&e))?;
        }
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).map_err(|e| wrong(&e))?;
        fs::write(site.tls().join("cert.pem"), made.cert.pem()).map_err(|e| wrong(&e))?;
        fs::write(site.tls().join("key.pem"), made.signing_key.serialize_pem()).map_err(|e| wrong(&e))?;
        client::trust(&site.tls().join("cert.pem"))?;
        Ok(site)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The directory whose `f/NAME` are the files.
    pub(super) fn www(&self) -> PathBuf {
        self.root.join("www")
    }

    pub(super) fn files(&self) -> PathBuf {
        self.www().join("f")
    }

    pub(super) fn uploads(&self) -> PathBuf {
        self.root.join("uploads")
    }

    pub(super) fn tls(&self) -> PathBuf {
        self.root.join("tls")
    }

    /// Makes the file of a cell.
    pub(super) fn prepare(&self, cell: &Cell) -> Result<(), String> {
        let Work::File(len) = cell.work.response() else { return Ok(()) };
        let path = self.files().join(name(len));
        if path.exists() {
            return Ok(());
        }
        let made = File::create(&path).map(BufWriter::new).and_then(|mut file| {
            noise::write(&mut file, len)?;
            file.into_inner().map_err(|e| e.into_error()).map(drop)
        });
        made.map_err(|e| format!("{}: {e}", path.display()))
    }

    pub(super) fn forget(&self, cell: &Cell) {
        if let Work::File(len) = cell.work.response()
            && len >= LARGE
        {
            let _ = fs::remove_file(self.files().join(name(len)));
        }
    }

    /// Compares the first upload with what was sent.
    pub(super) fn check_upload(&self, len: u64) -> Result<(), String> {
        let path = self.uploads().join("0");
        let bytes = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let same = bytes.len() as u64 == len && noise::is_at(0, &bytes);
        if same { Ok(()) } else { Err(format!("{}: not what was sent", path.display())) }
    }

    pub(super) fn remove_uploads(&self) {
        for entry in fs::read_dir(self.uploads()).into_iter().flatten().flatten() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn name(len: u64) -> String {
    format!("{len}.bin")
}

/// Returns the path that the load asks for. Uploads add the number of their connection.
pub(super) fn path(work: Work) -> String {
    match work.response() {
        Work::File(len) => format!("/f/{}", name(len)),
        Work::Tokens => "/tokens".to_owned(),
        Work::Paced => "/paced".to_owned(),
        Work::Events(_) => "/events".to_owned(),
        Work::Upload(_) => "/u/".to_owned(),
        _ => "/hello".to_owned(),
    }
}

/// Returns the body of an upload.
pub(super) fn upload(len: u64) -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let mut bytes = Vec::new();
        noise::write(&mut bytes, UPLOAD_MAX).expect("memory takes all");
        bytes
    });
    &bytes[..len.min(UPLOAD_MAX) as usize]
}
