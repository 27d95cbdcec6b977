//! Options of both servers.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::cli;

#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Address and port; port 0 chooses a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Directory served under /f/.
    #[arg(long, value_name = "DIR", default_value = ".", value_parser = directory)]
    pub(crate) root: PathBuf,
    /// Threads that run the service.
    #[arg(long, value_name = "N", default_value_t = cli::cpus())]
    pub(crate) workers: NonZeroUsize,
}

/// Returns the absolute path of a directory. Symbolic links stay in it, so that a deployment may switch them.
pub(crate) fn directory(path: &str) -> Result<PathBuf, String> {
    match Path::new(path).metadata() {
        Ok(found) if found.is_dir() => std::path::absolute(path).map_err(|e| e.to_string()),
        Ok(_) => Err("this is a file, give a directory".to_owned()),
        Err(e) => Err(format!("{e}; give an existing directory")),
    }
}
