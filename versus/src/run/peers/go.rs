//! Go's net/http, built from the source in `peers/go` where a Go toolchain is installed.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::installed::NOT_FOUND;
use crate::run::cell::{Cell, Work};
use crate::run::machine::says;
use crate::run::process::Launch;
use crate::run::site::Site;

/// Builds the server into a directory.
pub(super) fn build(dir: &Path) -> Result<PathBuf, String> {
    says("go", &["version"]).ok_or(NOT_FOUND)?;
    eprint!("\r\x1b[Kbuilds the server in Go");
    let program = dir.join("go-server");
    let mut command = Command::new("go");
    command.arg("build").arg("-o").arg(&program).arg(".").current_dir(sources().join("go"));
    // It needs the standard library only.
    command.env("GOPROXY", "off").env("GOTOOLCHAIN", "local").env("GOFLAGS", "-trimpath");
    let built = command.output().map_err(|e| format!("go build: {e}"))?;
    eprint!("\r\x1b[K");
    if built.status.success() {
        Ok(program)
    } else {
        Err(format!("go build failed: {}", String::from_utf8_lossy(&built.stderr).trim()))
    }
}

pub(super) fn launch(program: &Path, cell: &Cell, site: &Site, to: Option<SocketAddr>) -> Launch {
    let mut arguments: Vec<OsString> =
        vec!["-root".into(), site.files().into(), "-uploads".into(), site.uploads().into()];
    if let Work::Events(hz) = cell.work {
        arguments.extend(["-hz".into(), hz.to_string().into()]);
    }
    if let Some(to) = to {
        arguments.extend(["-relay".into(), to.to_string().into()]);
    }
    if cell.protocol.is_tls() {
        arguments.extend(["-tls".into(), site.tls().into()]);
    }
    let variables = vec![("GOMAXPROCS".to_owned(), cell.workers.to_string())];
    Launch { program: program.to_owned(), arguments, variables, address: None }
}

/// Returns the directory of the sources of servers in other languages.
fn sources() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/peers"))
}
