//! nginx, with a configuration and a prefix of its own.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::installed::NOT_FOUND;
use crate::load::Protocol;
use crate::run::cell::{Behind, Cell, Work};
use crate::run::process::{Launch, reserve};
use crate::run::site::Site;

/// nginx as it was built here.
#[derive(Debug)]
pub(super) struct Nginx {
    program: PathBuf,
    http2: bool,
    tls: bool,
    /// Takes PUT.
    dav: bool,
    relay: Relay,
}

#[derive(Debug, PartialEq)]
enum Relay {
    No,
    BuiltIn,
    Module(PathBuf),
}

impl Nginx {
    pub(super) fn find() -> Result<Self, String> {
        // Where it is installed for administrators only.
        let programs = ["nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx"];
        let asked = programs.into_iter().find_map(|program| {
            let output = Command::new(program).arg("-V").output().ok()?;
            Some((program, String::from_utf8_lossy(&output.stderr).into_owned()))
        });
        let (program, built) = asked.ok_or(NOT_FOUND)?;
        Ok(Self::parse(program.into(), &built, Path::exists))
    }

    fn parse(program: PathBuf, built: &str, exists: impl Fn(&Path) -> bool) -> Self {
        let words: Vec<&str> = built.split_ascii_whitespace().collect();
        let with = |name: &str| words.contains(&name);
        let modules = words.iter().find_map(|word| word.strip_prefix("--modules-path="));
        let module = modules.map(|dir| Path::new(dir).join("ngx_stream_module.so"));
        let relay = match module {
            _ if with("--with-stream") => Relay::BuiltIn,
            Some(path) if with("--with-stream=dynamic") && exists(&path) => Relay::Module(path),
            _ => Relay::No,
        };
        let (http2, tls, dav) =
            (with("--with-http_v2_module"), with("--with-http_ssl_module"), with("--with-http_dav_module"));
        Self { program, http2, tls, dav, relay }
    }

    pub(super) fn can(&self, cell: &Cell) -> bool {
        let work = match cell.work {
            Work::Hello | Work::Handshake { .. } | Work::File(_) => true,
            Work::Tokens | Work::Paced | Work::Events(_) => false,
            Work::Upload(_) => self.dav,
            Work::Relay(_) => self.relay != Relay::No,
            Work::Proxy(_) => true,
            Work::ProxyToTls(_) => self.tls,
        };
        work && (self.http2 || !cell.protocol.is_h2()) && (self.tls || !cell.protocol.is_tls())
    }

    pub(super) fn launch(&self, cell: &Cell, site: &Site, to: Option<SocketAddr>) -> Result<Launch, String> {
        let address = reserve()?;
        let prefix = site.root().to_owned();
        let path = prefix.join("nginx.conf");
        let text = self.config(cell, site, address.addr, to);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        let arguments = vec!["-p".into(), prefix.into(), "-c".into(), path.into()];
        Ok(Launch { program: self.program.clone(), arguments, address: Some(address), ..Launch::default() })
    }

    fn config(&self, cell: &Cell, site: &Site, address: SocketAddr, to: Option<SocketAddr>) -> String {
        let mut text = String::new();
        let mut line = |line: String| writeln!(text, "{line}").expect("memory takes all");
        if let Relay::Module(path) = &self.relay {
            line(format!("load_module {};", quoted(path)));
        }
        line(format!("worker_processes {}; daemon off; pid nginx.pid; error_log stderr crit;", cell.workers));
        // Its workers could not read the files as another user.
        if rustix::process::geteuid().is_root() {
            line("user root root;".to_owned());
        }
        line("worker_rlimit_nofile 65536; events { worker_connections 32768; }".to_owned());
        if let (Some(to), Work::Relay(_)) = (to, cell.work) {
            line(format!("stream {{ server {{ listen {address} backlog=4096; tcp_nodelay on; proxy_pass {to}; }} }}"));
            return text;
        }
        line("http { access_log off; sendfile on; tcp_nopush on; tcp_nodelay on;".to_owned());
        line("keepalive_requests 1000000000; open_file_cache max=1000; client_max_body_size 0;".to_owned());
        for temporary in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            line(format!("{temporary}_temp_path {};", quoted(&site.root().join(format!("nginx-{temporary}")))));
        }
        if let Some(to) = to {
            line(format!("upstream origin {{ server {to}; keepalive 128; keepalive_requests 1000000000; }}"));
            let scheme = if cell.work.is_to_tls() { "https" } else { "http" };
            line(format!("server {{ listen {address} backlog=4096; location / {{ proxy_pass {scheme}://origin;"));
            if cell.work.is_to_tls() {
                let cert = quoted(&site.tls().join("cert.pem"));
                line(format!("proxy_ssl_trusted_certificate {cert}; proxy_ssl_verify on; proxy_ssl_name localhost;"));
                // Not among the defaults of older versions, and what all contenders speak.
                line("proxy_ssl_protocols TLSv1.3;".to_owned());
            }
            line("proxy_http_version 1.1; proxy_set_header Connection \"\";".to_owned());
            // Otherwise tokens wait for a whole buffer.
            let buffers = if cell.work == Work::Proxy(Behind::Tokens) { "off" } else { "on" };
            line(format!("proxy_buffering {buffers}; }} }} }}"));
            return text;
        }
        let kind = match cell.protocol {
            Protocol::H1 => "",
            Protocol::H2 => " http2",
            Protocol::TlsH1 => " ssl",
            Protocol::TlsH2 => " ssl http2",
        };
        line(format!("server {{ listen {address}{kind} backlog=4096;"));
        if cell.protocol.is_tls() {
            let [cert, key] = ["cert.pem", "key.pem"].map(|name| quoted(&site.tls().join(name)));
            line(format!("ssl_certificate {cert}; ssl_certificate_key {key};"));
        }
        line(format!("location /f/ {{ alias {}; }}", quoted(&site.files().join(""))));
        line(r#"location = /hello { default_type application/json; return 200 '{"msg":"ok"}'; }"#.to_owned());
        if self.dav {
            line(format!("location /u/ {{ alias {}; dav_methods PUT; }}", quoted(&site.uploads().join(""))));
        }
        line("} }".to_owned());
        text
    }
}

fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display().to_string().replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_was_built_with_decides_what_it_does() {
        let cell = |name: &str| {
            let plan = crate::run::plan::Plan::default();
            crate::run::matrix::matrix(&plan, 2).into_iter().find(|cell| cell.name == name).unwrap()
        };
        let built = "nginx version: nginx/1.22.1\nconfigure arguments: --modules-path=/m --with-http_ssl_module \
                     --with-http_v2_module --with-http_dav_module --with-stream=dynamic";
        let whole = Nginx::parse("nginx".into(), built, |path| path == Path::new("/m/ngx_stream_module.so"));
        let light =
            Nginx::parse("nginx".into(), "configure arguments: --modules-path=/m --with-stream=dynamic", |_| false);
        for (name, by_whole, by_light) in [
            ("files/1k", true, true),
            ("json/1", true, true),
            ("uploads/1m", true, false),
            ("relay/1m", true, false),
            ("proxy/1m", true, true),
            ("proxy/tls-1m", true, false),
            ("tls/upload-1m", true, false),
            ("churn/json", true, true),
            ("paced/64", false, false),
            ("http2/64k", true, false),
            ("tls/64k", true, false),
            ("tokens/1", false, false),
            ("events/100", false, false),
        ] {
            assert_eq!((whole.can(&cell(name)), light.can(&cell(name))), (by_whole, by_light), "{name}");
        }
        assert_eq!(quoted(Path::new("a \"b\"")), r#""a \"b\"""#);
    }
}
