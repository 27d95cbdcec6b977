//! The page in a real browser: it loads without errors, shows the load in dark and light and on a phone, and reconnects
//! after a restart of the server.

use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::common::{Options, cli};
use super::site::Site;
use super::upload::Uploads;
use super::{App, Numbers, until_interrupted};
use chromium::Chromium;
use millstream::Capabilities;
use millstream::net::TcpListener;
use millstream_layers::AllowedHostsLayer;

mod chromium;

/// The server of this example on its own runtime, so that it can be stopped with all its connections.
struct Server {
    address: SocketAddr,
    runtime: Option<Runtime>,
    numbers: Numbers,
    root: TempDir,
}

impl Server {
    fn start(listen: SocketAddr) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::write(root.path().join("a file.bin"), vec![7; 1 << 20]).expect("a file");
        std::fs::write(root.path().join("a-name-that-is-long-and-has-no-place-to-break.txt"), "x").expect("a file");
        let workers = NonZeroUsize::new(2).expect("two");
        let options = Options { listen, root: root.path().to_owned(), workers };
        let hosts = AllowedHostsLayer::local();
        let numbers =
            Numbers::start(SocketAddr::from(([127, 0, 0, 1], 0)), false, hosts.clone(), async |live| Ok(live.build()))
                .expect("a free port");
        let app = App::new(&options, &Site::default(), &Uploads::default(), &numbers, hosts)
            .expect("a directory that can be served");
        let runtime = cli::runtime(workers).expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind(listen)).expect("a port");
        let address = listener.local_addr().expect("an address");
        runtime.spawn(until_interrupted(listener, app));
        Self { address, runtime: Some(runtime), numbers, root }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

/// Returns the status line of the response to a request for `path` with this `host`.
pub(super) fn status(address: SocketAddr, path: &str, host: &str) -> String {
    let mut client = std::net::TcpStream::connect(address).expect("a connection");
    write!(client, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("a request");
    let mut line = String::new();
    std::io::BufReader::new(client).read_line(&mut line).expect("an answer");
    line
}

#[test]
fn the_page_is_not_for_pages_of_other_sites() {
    let server = Server::start(SocketAddr::from(([127, 0, 0, 1], 0)));
    for path in ["/", "/live", "/f/a%20file.bin"] {
        for host in [&server.address.to_string(), "localhost"] {
            assert!(status(server.address, path, host).contains("200 OK"), "{path} {host}");
        }
        assert!(status(server.address, path, "evil.example").contains("421 Misdirected Request"), "{path}");
    }
}

/// Repeats requests for `path` until `stop` is set.
async fn load(address: SocketAddr, path: &str, stop: &AtomicBool) {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let shake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shake.expect("a connection");
    tokio::spawn(connection);
    while !stop.load(Ordering::Relaxed) {
        let request = Request::get(path).header("host", "localhost").body(Empty::<Bytes>::new()).expect("a request");
        let answer = sender.send_request(request).await.expect("an answer");
        answer.into_body().collect().await.expect("its body");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// JavaScript: contrast of two computed colours by the relative luminance of WCAG 2.
const CONTRAST: &str = r#"(selector, ground) => {
  const parse = text => text.match(/[\d.]+/g).slice(0, 3).map(n => {
    n /= 255;
    return n <= 0.03928 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4;
  });
  const light = rgb => 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
  const of = (selector, property) => light(parse(getComputedStyle(document.querySelector(selector))[property]));
  const property = selector.startsWith("path") || selector.includes(" path") ? "stroke" : "color";
  const [a, b] = [of(selector, property), of(ground, "backgroundColor")];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"#;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

#[test]
fn a_real_browser_shows_what_happens() {
    let Some(program) = chromium::found() else {
        return testkit::skip("the page in a browser", "chromium is not installed");
    };
    let server = Server::start(SocketAddr::from(([127, 0, 0, 1], 0)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut browser = Chromium::start(&program).await;
        browser.look(1280, 800, "light").await;
        browser.open(&server.url()).await;
        browser.until("document.body.className === 'live' && samples.filter(Boolean).length > 2").await;
        assert!(server.numbers.live().stats().compressed > 2, "the browser accepts gzip");

        shows_load(&mut browser, &server).await;
        looks_well(&mut browser).await;
        assert_eq!(browser.complaints(), [""; 0]);
        pauses(&mut browser).await;
        comes_back(&mut browser, server).await;
    });
}

/// Values and plots follow the activity of the server.
async fn shows_load(browser: &mut Chromium, server: &Server) {
    let stop = AtomicBool::new(false);
    let capabilities = Capabilities::get();
    let goes_by_sendfile = capabilities.sendfile().is_yes() && capabilities.mapping().is_yes();
    let asked = async {
        let page = async {
            for key in ["requests", "bytes", "frames", "calls", "head", "gap"] {
                browser.until(&format!("samples.some(s => s && height(s.{key}) > 0)")).await;
            }
            for key in ["head", "gap"] {
                let shown = format!("document.querySelector('[data-key={key}] .value').innerText");
                browser.until(&format!("/^(≤ |> |[0-9.]+–)[0-9.]+ (µs|ms|s)$/.test({shown})")).await;
            }
            browser.until("samples.some(s => s && s.streams > 1)").await;
            browser.until("samples.filter(s => s && s.requests > 10).length > 4").await;
            // The displayed value matches the plot.
            let shown = "document.querySelector('[data-key=requests] .value').innerText";
            browser.until(&format!("/^[0-9.]+ k?\\/s$/.test({shown}) && parseFloat({shown}) > 0")).await;
            let points =
                "(document.querySelector('[data-key=requests] .trace').getAttribute('d').match(/[ML]/g) || []).length";
            browser.until(&format!("{points} > 4 && {points} === samples.length")).await;
            if goes_by_sendfile {
                browser.until("parseFloat(document.querySelector('.of-sendfile dd').innerText) > 50").await;
            }
            assert_eq!(browser.eval("document.querySelectorAll('.plot').length").await, json!(11));
            stop.store(true, Ordering::Relaxed);
        };
        tokio::join!(
            page,
            load(server.address, "/hello", &stop),
            load(server.address, "/tokens", &stop),
            load(server.address, "/f/a%20file.bin", &stop)
        );
    };
    asked.await;
    // The page itself keeps one stream open; the load clients are gone.
    browser.until("last().requests === 0 && last().streams >= 1 && last().connections >= 1").await;
    assert!(server.root.path().join("a file.bin").exists());
    let listed =
        browser.eval("document.querySelectorAll('a[href=\"/f/a%20file%2Ebin\"], a[href=\"/f/a%20file.bin\"]').length");
    assert_eq!(listed.await, json!(1));
    browser.eval("document.getElementById('load').click()").await;
    browser.until("last().requests > 20").await;
}

/// In light and dark, on desktop and phone: readable text, and no horizontal scrolling.
async fn looks_well(browser: &mut Chromium) {
    let mut grounds = Vec::new();
    for (width, height) in [(1280, 800), (768, 1024), (360, 640)] {
        for scheme in ["light", "dark"] {
            browser.look(width, height, scheme).await;
            browser
                .until(&format!("innerWidth === {width} && matchMedia('(prefers-color-scheme: {scheme})').matches"))
                .await;
            let wide = browser.eval("document.documentElement.scrollWidth").await;
            assert_eq!(wide, json!(width), "{scheme}: it scrolls sideways");
            let cut = "[...document.querySelectorAll('.plot *')]
                .filter(e => e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML)";
            assert_eq!(browser.eval(cut).await, json!([]), "{width} {scheme}: cut off");
            for selector in [".value", ".plot h3", ".note", "#state", ".routes a", "td + td", "button"] {
                let ground = if selector == "#state" { "body" } else { ".plot" };
                let contrast =
                    number(&browser.eval(&format!("({CONTRAST})({}, {})", json!(selector), json!(ground))).await);
                assert!(contrast >= 4.5, "{scheme} {selector}: contrast {contrast:.2}");
            }
            for selector in [".plot path.trace", ".plot path.second"] {
                let contrast = number(&browser.eval(&format!("({CONTRAST})({}, '.plot')", json!(selector))).await);
                assert!(contrast >= 3.0, "{scheme} {selector}: contrast {contrast:.2}");
            }
            grounds.push(browser.eval("getComputedStyle(document.body).backgroundColor").await);
            browser.picture(&format!("{width}-{scheme}.png")).await;
        }
    }
    assert!(grounds.chunks(2).all(|pair| pair[0] != pair[1]), "dark is not light: {grounds:?}");
    let named = "[...document.querySelectorAll('.plot')]
            .every(p => document.getElementById(p.getAttribute('aria-labelledby')).innerText)
        && [...document.querySelectorAll('.plot')]
            .every(p => document.getElementById(p.getAttribute('aria-describedby')).textContent)
        && [...document.querySelectorAll('svg')].every(s => s.getAttribute('role') === 'img')
        && document.getElementById('state').getAttribute('role') === 'status'";
    assert_eq!(browser.eval(named).await, json!(true));
    // The plots in words, whose last value is the peak that the page shows.
    let plot = |key: &str| format!("document.querySelector('[data-key={key}] svg').getAttribute('aria-label')");
    let bytes = format!(
        "/^Throughput over the last minute: [0-9.]+ [KMG]?i?B\\/s to ([0-9.]+ [KMG]?i?B\\/s)$/.exec({})[1]",
        plot("bytes")
    );
    let peak = "document.querySelector('[data-key=bytes] .note').innerText.replace('peak ', '')";
    browser.until(&format!("{bytes} === {peak}")).await;
    browser.until(&format!("/; connections: [0-9]+ to [0-9]+$/.test({})", plot("streams"))).await;
    browser.until(&format!("/by sendfile [0-9.]+% to [0-9.]+%/.test({})", plot("paths"))).await;
    browser.look(1280, 800, "light").await;
}

/// Pause freezes the plots. After resuming, no sample that the server kept is missing.
async fn pauses(browser: &mut Chromium) {
    browser.eval("document.getElementById('switch').click()").await;
    assert_eq!(browser.eval("document.body.className + ' ' + button.innerText").await, json!("paused Go on"));
    let before = number(&browser.eval("last().at").await);
    tokio::time::sleep(Duration::from_millis(1600)).await;
    assert_eq!(number(&browser.eval("last().at").await), before);
    browser.eval("document.getElementById('switch').click()").await;
    browser.until(&format!("samples.filter(s => s && s.at > {before}).length > 3")).await;
    let gaps = "samples.some((s, i) => i && s && samples[i - 1] && s.at - samples[i - 1].at > 1500)";
    assert_eq!(browser.eval(gaps).await, json!(false));
    assert_eq!(browser.eval("document.body.className").await, json!("live"));
}

/// The page shows that the server is gone, and finds a restarted one.
async fn comes_back(browser: &mut Chromium, server: Server) {
    let address = server.address;
    let end = tokio::task::spawn_blocking(move || drop(server));
    end.await.expect("it ends");
    browser.until("document.body.className === 'lost'").await;
    let words = browser.eval("document.getElementById('state').innerText").await;
    assert!(words.as_str().is_some_and(|words| words.starts_with("Connection lost")), "{words}");
    browser.picture("lost.png").await;
    let lost = number(&browser.eval("last() ? last().at : Math.max(...samples.filter(Boolean).map(s => s.at))").await);
    let server = tokio::task::spawn_blocking(move || Server::start(address)).await.expect("it starts");
    browser.until(&format!("document.body.className === 'live' && last() && last().at > {lost}")).await;
    // Old samples are still shown, and so is the gap.
    browser.until("samples.includes(null) && samples.filter(Boolean).length > 4").await;
    // The console shows refused connections and no other errors.
    let others: Vec<String> =
        browser.complaints().into_iter().filter(|complaint| !complaint.contains("net::ERR_")).collect();
    assert_eq!(others, [""; 0]);
    // The drop waits for connections, which the page opens again and again.
    tokio::task::spawn_blocking(move || drop(server)).await.expect("it ends");
}
