//! The servers that are compared: those of this program, and others that are installed.

mod go;
mod haproxy;
mod installed;
mod nginx;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::cell::{Cell, Work};
use super::machine::says;
use super::plan::Plan;
use super::process::{Launch, reserve};
use super::record::Skipped;
use super::site::Site;
use crate::load::Protocol;
use installed::NOT_FOUND;
use nginx::Nginx;

/// A server of the comparison.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) name: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// This program, with the server's name and settings of millstream.
    Own(&'static str, Vec<String>),
    Nginx(Nginx),
    Haproxy(PathBuf),
    Go(PathBuf),
    Caddy,
    StaticWebServer,
}

/// Settings that `--sweep` compares with the defaults.
const SETTINGS: [&str; 9] = [
    "gather-us=0",
    "gather-us=250",
    "gather-us=4000",
    "high-mark-kib=16",
    "high-mark-kib=256",
    "high-mark-kib=1024",
    "adaptive-kib=16-1024",
    "per-core=1",
    "per-core=1 gather-us=0",
];

/// Names of all servers, in the order of a round. The first is the one that others are compared with.
const NAMES: [&str; 7] = ["millstream", "stock", "nginx", "haproxy", "go", "caddy", "static-web-server"];

/// Returns the servers of a plan that are installed, and the others with the reason.
pub(super) fn find(plan: &Plan, dir: &Path) -> Result<(Vec<Contender>, Vec<Skipped>), String> {
    let (mut found, mut absent) = (Vec::new(), Vec::new());
    if plan.sweep {
        let default = std::iter::once("");
        found.extend(default.chain(SETTINGS).map(|settings| Contender {
            name: if settings.is_empty() { NAMES[0].to_owned() } else { settings.to_owned() },
            kind: Kind::Own(NAMES[0], settings.split_ascii_whitespace().map(str::to_owned).collect()),
        }));
        return Ok((found, absent));
    }
    if let Some(unknown) = plan.with.iter().find(|name| !NAMES.contains(&name.as_str())) {
        return Err(format!("--with {unknown}: there are {}", NAMES.join(", ")));
    }
    for name in NAMES {
        let wanted = match &plan.with[..] {
            // Ratios are to the first.
            with if !with.is_empty() => name == NAMES[0] || with.iter().any(|with| with == name),
            _ => !plan.quick || NAMES[..2].contains(&name),
        };
        if !wanted {
            continue;
        }
        let kind = match name {
            "millstream" | "stock" => Ok(Kind::Own(name, Vec::new())),
            "nginx" => Nginx::find().map(Kind::Nginx),
            "haproxy" => haproxy::find().map(Kind::Haproxy),
            "go" => go::build(dir).map(Kind::Go),
            "caddy" => says("caddy", &["version"]).map(|_| Kind::Caddy).ok_or_else(|| NOT_FOUND.to_owned()),
            _ => says(name, &["--version"]).map(|_| Kind::StaticWebServer).ok_or_else(|| NOT_FOUND.to_owned()),
        };
        match kind {
            Ok(kind) => found.push(Contender { name: name.to_owned(), kind }),
            Err(reason) if plan.with.is_empty() => {
                absent.push(Skipped { cell: String::new(), contender: name.to_owned(), reason });
            }
            Err(reason) => return Err(format!("--with {name}: {reason}")),
        }
    }
    Ok((found, absent))
}

/// Returns the server behind a relay or a proxy.
pub(super) fn origin(work: Work, site: &Site) -> Result<Launch, String> {
    let mut launch = own(NAMES[0], &[], site, 1)?;
    if work.is_to_tls() {
        launch.arguments.extend(["--tls".into(), site.tls().into()]);
    }
    Ok(launch)
}

/// Returns this program as a server.
fn own(name: &str, settings: &[String], site: &Site, workers: u32) -> Result<Launch, String> {
    let program = std::env::current_exe().map_err(|e| format!("this program has no path: {e}"))?;
    let mut arguments: Vec<OsString> = vec!["serve".into(), name.into(), "--root".into(), site.files().into()];
    arguments.extend(["--uploads".into(), site.uploads().into(), "--workers".into(), workers.to_string().into()]);
    arguments.extend(settings.iter().flat_map(|setting| ["--set".into(), setting.into()]));
    Ok(Launch { program, arguments, ..Launch::default() })
}

impl Contender {
    /// Returns whether the server can do the work of a cell.
    pub(super) fn can(&self, cell: &Cell) -> bool {
        match &self.kind {
            Kind::Own(_, settings) => {
                // Events, relays and proxies are of one runtime here.
                let per_core = settings.iter().any(|setting| setting == "per-core=1");
                !per_core || !(cell.work.behind().is_some() || matches!(cell.work, Work::Events(_)))
            }
            Kind::Nginx(nginx) => nginx.can(cell),
            Kind::Haproxy(_) => matches!(cell.work, Work::Proxy(_)),
            Kind::Go(_) => !matches!(cell.work, Work::Proxy(_) | Work::ProxyToTls(_)),
            Kind::Caddy | Kind::StaticWebServer => matches!(cell.work, Work::File(_)) && cell.protocol == Protocol::H1,
        }
    }

    pub(super) fn launch(&self, cell: &Cell, site: &Site, to: Option<SocketAddr>) -> Result<Launch, String> {
        let (program, arguments, address) = match &self.kind {
            Kind::Own(name, settings) => {
                let mut launch = own(name, settings, site, cell.workers)?;
                let mut option = |name: &str, value: OsString| launch.arguments.extend([name.into(), value]);
                if let Work::Events(hz) = cell.work {
                    option("--hz", hz.to_string().into());
                }
                if let Some(to) = to {
                    let how = if let Work::Relay(_) = cell.work { "--relay" } else { "--proxy" };
                    option(how, to.to_string().into());
                }
                if cell.work.is_to_tls() {
                    option("--trust", site.tls().into());
                }
                if cell.protocol.is_tls() {
                    option("--tls", site.tls().into());
                }
                return Ok(launch);
            }
            Kind::Nginx(nginx) => return nginx.launch(cell, site, to),
            Kind::Haproxy(program) => return haproxy::launch(program, cell, site, to),
            Kind::Go(program) => return Ok(go::launch(program, cell, site, to)),
            Kind::Caddy => {
                let address = reserve()?;
                ("caddy", format!("file-server --listen {} --root", address.addr), address)
            }
            Kind::StaticWebServer => {
                let address = reserve()?;
                let options = "--threads-multiplier 1 --log-level error --root";
                ("static-web-server", format!("--host 127.0.0.1 --port {} {options}", address.addr.port()), address)
            }
        };
        let mut arguments: Vec<OsString> = arguments.split(' ').map(Into::into).collect();
        arguments.push(site.www().into());
        let variables = vec![("GOMAXPROCS".to_owned(), cell.workers.to_string())];
        Ok(Launch { program: program.into(), arguments, variables, address: Some(address) })
    }
}
