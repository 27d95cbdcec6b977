//! Files of a report.

use std::fs;
use std::path::Path;

pub(super) fn save(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))
}
