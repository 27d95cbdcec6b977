//! haproxy, with a configuration of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::installed::NOT_FOUND;
use crate::run::cell::Cell;
use crate::run::process::{Launch, reserve};
use crate::run::site::Site;

pub(super) fn find() -> Result<PathBuf, String> {
    // Where it is installed for administrators only.
    let programs = ["haproxy", "/usr/sbin/haproxy", "/usr/local/sbin/haproxy"];
    let found = programs
        .into_iter()
        .find(|program| Command::new(program).arg("-v").output().is_ok_and(|output| output.status.success()));
    found.map(PathBuf::from).ok_or_else(|| NOT_FOUND.to_owned())
}

pub(super) fn launch(program: &Path, cell: &Cell, site: &Site, to: Option<SocketAddr>) -> Result<Launch, String> {
    let to = to.ok_or("haproxy needs a server behind it")?;
    let address = reserve()?;
    let path = site.root().join("haproxy.cfg");
    std::fs::write(&path, config(cell.workers, address.addr, to)).map_err(|e| format!("{}: {e}", path.display()))?;
    // In the foreground, so that it ends with its process.
    let arguments = vec!["-db".into(), "-f".into(), path.into()];
    Ok(Launch { program: program.to_owned(), arguments, address: Some(address), ..Launch::default() })
}

fn config(workers: u32, address: SocketAddr, to: SocketAddr) -> String {
    format!(
        "global\n maxconn 2000\n nbthread {workers}\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n \
         http-reuse always\n option splice-auto\n\
         listen proxy\n bind {address} backlog 4096\n server origin {to}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_and_asks_where_it_is_told_to() {
        let config = config(2, "127.0.0.1:81".parse().unwrap(), "127.0.0.1:82".parse().unwrap());
        for line in [" nbthread 2", " bind 127.0.0.1:81 backlog 4096", " server origin 127.0.0.1:82"] {
            assert!(config.lines().any(|found| found == line), "{line} in {config}");
        }
    }
}
