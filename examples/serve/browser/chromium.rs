//! A headless browser, driven through the [DevTools protocol](https://chromedevtools.github.io/devtools-protocol/).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// Timeout of every request to the browser.
const PATIENCE: Duration = Duration::from_secs(90);

/// A browser started for one test. It is killed on drop.
pub(super) struct Chromium {
    child: Child,
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    session: Option<String>,
    asked: u64,
    /// Problems reported by the page: exceptions, console errors, violations of its content security policy.
    complaints: Vec<String>,
    _profile: TempDir,
}

/// Returns the path of an installed browser.
pub(super) fn found() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&paths).flat_map(|dir| names.map(|name| dir.join(name))).find(|path| path.is_file())
}

impl Chromium {
    pub(super) async fn start(program: &Path) -> Self {
        let profile = tempfile::tempdir().expect("a directory for the profile");
        let mut command = Command::new(program);
        command
            .args(["--headless=new", "--remote-debugging-port=0", "--no-first-run", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update"])
            .args(["--disable-sync", "--disable-extensions", "--mute-audio", "--hide-scrollbars=false"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if rustix::process::geteuid().is_root() {
            // The sandbox does not work for root. This browser opens only our own page.
            command.arg("--no-sandbox");
        }
        let mut child = command.spawn().expect("the browser starts");
        let errors = BufReader::new(child.stderr.take().expect("it is piped"));
        let address = tokio::task::spawn_blocking(move || {
            let mut lines = errors.lines().map_while(Result::ok);
            let found = lines.find_map(|line| Some(line.strip_prefix("DevTools listening on ")?.to_owned()));
            // The pipe must be drained, or the browser blocks when it is full.
            std::thread::spawn(move || lines.for_each(drop));
            found
        });
        let address = timeout(PATIENCE, address).await.expect("an address in time").expect("a thread that ends");
        let address = address.expect("the browser says where it listens");
        let (socket, _) = connect_async(address).await.expect("the browser answers");
        let mut this = Self { child, socket, session: None, asked: 0, complaints: Vec::new(), _profile: profile };
        let page = this.ask("Target.createTarget", json!({ "url": "about:blank" })).await;
        let id = page["targetId"].as_str().expect("an id").to_owned();
        let attached = this.ask("Target.attachToTarget", json!({ "targetId": id, "flatten": true })).await;
        this.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Audits"] {
            this.ask(&format!("{domain}.enable"), json!({})).await;
        }
        this
    }

    /// Sends a command and returns its result. Records the events that arrive meanwhile.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        let mut request = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(request.to_string())).await.expect("the browser listens");
        let answer = async {
            loop {
                let message = self.socket.next().await.expect("the browser is there").expect("a message");
                let Message::Text(text) = message else { continue };
                let value: Value = serde_json::from_str(&text).expect("JSON");
                if value["id"] == json!(id) {
                    return value;
                }
                self.complaints.extend(complaint(&value));
            }
        };
        let mut answer = timeout(PATIENCE, answer).await.unwrap_or_else(|_| panic!("{method} took {PATIENCE:?}"));
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    pub(super) async fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.ask("Runtime.evaluate", params).await;
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    pub(super) async fn until(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        while self.eval(expression).await != json!(true) {
            let text = "document.body.innerText";
            assert!(Instant::now() < end, "not within {PATIENCE:?}: {expression}\n{}", self.eval(text).await);
            sleep(Duration::from_millis(100)).await;
        }
    }

    pub(super) async fn open(&mut self, url: &str) {
        self.ask("Page.navigate", json!({ "url": url })).await;
        self.until(&format!("document.readyState === 'complete' && location.href === {}", json!(url))).await;
    }

    /// Sets the viewport in CSS pixels and the preferred colour scheme.
    pub(super) async fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.ask("Emulation.setDeviceMetricsOverride", size).await;
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.ask("Emulation.setEmulatedMedia", media).await;
    }

    /// Saves a screenshot in the directory that `MILLSTREAM_SCREENSHOTS` names.
    pub(super) async fn picture(&mut self, name: &str) {
        use base64::Engine;

        let Some(directory) = std::env::var_os("MILLSTREAM_SCREENSHOTS") else { return };
        let params = json!({ "format": "png", "captureBeyondViewport": true });
        let answer = self.ask("Page.captureScreenshot", params).await;
        let picture = base64::prelude::BASE64_STANDARD.decode(answer["data"].as_str().expect("a picture"));
        std::fs::write(Path::new(&directory).join(name), picture.expect("base64")).expect("a file");
    }

    /// Takes the problems reported since the last call.
    pub(super) fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }
}

fn complaint(event: &Value) -> Option<String> {
    let params = &event["params"];
    let is_one = match event["method"].as_str()? {
        "Runtime.exceptionThrown" | "Audits.issueAdded" => true,
        "Runtime.consoleAPICalled" => matches!(params["type"].as_str(), Some("error" | "warning" | "assert")),
        "Log.entryAdded" => matches!(params["entry"]["level"].as_str(), Some("error" | "warning")),
        _ => false,
    };
    is_one.then(|| params.to_string())
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Fails only if it has already exited. Its child processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
