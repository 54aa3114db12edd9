//! A real browser without a window (Chromium), driven by its DevTools protocol over pipes.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longest wait for an answer and for a condition. A busy machine takes seconds to start a page.
const LIMIT: Duration = Duration::from_secs(60);

/// A browser with one page. It ends when dropped.
#[derive(Debug)]
pub struct Browser {
    process: Child,
    to: Option<ChildStdin>,
    messages: Receiver<Value>,
    /// Number of the last request.
    requests: u64,
    session: Option<String>,
}

impl Browser {
    /// Starts the installed Chromium with its profile in this folder; `None`, with a `skipped:` line, if there is none.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn start(folder: &Path) -> Option<Browser> {
        let is_there = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
        let Some(program) = ["chromium", "chromium-headless-shell"].iter().find(is_there) else {
            println!("skipped: no browser (Debian's package chromium)");
            return None;
        };
        // The protocol is on the descriptors 3 and 4.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 < /dev/null > /dev/null 2>&1", program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"])
            .args(["--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", folder.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh runs");
        let to = process.stdin.take();
        let mut from = process.stdout.take().expect("its output is a pipe");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let (mut rest, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
            while let Ok(count @ 1..) = from.read(&mut chunk) {
                rest.extend_from_slice(&chunk[..count]);
                while let Some(end) = rest.iter().position(|byte| *byte == 0) {
                    let message: Vec<u8> = rest.drain(..=end).collect();
                    let parsed = serde_json::from_slice(&message[..end]);
                    if parsed.is_ok_and(|message: Value| sender.send(message).is_err()) {
                        return;
                    }
                }
            }
        });
        let mut browser = Browser { process, to, messages, requests: 0, session: None };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        browser.call("Page.enable", json!({}));
        Some(browser)
    }

    /// Opens a page.
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
    }

    /// Shows pages over TLS whatever their certificate is, as after a user's confirmation.
    pub fn trust_any_certificate(&mut self) {
        self.call("Security.setIgnoreCertificateErrors", json!({"ignore": true}));
    }

    /// Sets the size of the window in pixels, and the colours that the user prefers.
    pub fn look(&mut self, width: u32, height: u32, dark: bool) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let value = if dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Evaluates an expression in the page; returns its value.
    ///
    /// # Panics
    /// When it throws.
    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true; on failure prints the text of the page. While a page is being loaded, an
    /// expression may throw, or be ended.
    ///
    /// # Panics
    /// When it does not become true.
    pub fn wait_for(&mut self, expression: &str) {
        let limit = Instant::now() + LIMIT;
        let expression = format!(
            "(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()"
        );
        let params = json!({"expression": expression, "returnByValue": true});
        let is_true = |answer: &Value| answer["result"]["value"] == true;
        while !self.request("Runtime.evaluate", params.clone()).is_ok_and(|answer| is_true(&answer))
        {
            if Instant::now() >= limit {
                let page = self.value("document.body.innerText");
                panic!("not: {expression}\n{}", page.as_str().unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types a text where the keyboard is.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Presses a key: a letter, or `Enter`, `Escape`, `Tab`.
    pub fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            letter if letter.chars().count() == 1 => letter,
            _ => "",
        };
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "Tab" => 9,
            _ => 0,
        };
        let mut event = json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code});
        let up = event.clone();
        event["type"] = json!("keyDown");
        event["text"] = json!(text);
        self.call("Input.dispatchKeyEvent", event);
        self.call("Input.dispatchKeyEvent", up);
    }

    /// Takes a picture of the window (PNG).
    pub fn picture(&mut self) -> Vec<u8> {
        let answer = self.call("Page.captureScreenshot", json!({"format": "png"}));
        decoded(answer["data"].as_str().unwrap_or_default())
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.request(method, params);
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Sends a request; returns its result, or the browser's error.
    fn request(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.requests += 1;
        let mut request = json!({"id": self.requests, "method": method, "params": params});
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        let to = self.to.as_mut().expect("it is open");
        let mut line = request.to_string().into_bytes();
        line.push(0);
        to.write_all(&line).expect("the browser reads");
        let limit = Instant::now() + LIMIT;
        loop {
            let left = limit.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left);
            let message = message.unwrap_or_else(|error| panic!("{method}: no answer: {error}"));
            if message["id"] == self.requests {
                return match message.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(message["result"].clone()),
                };
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends when its pipe is closed, with its other processes.
        drop(self.to.take());
        let limit = Instant::now() + Duration::from_secs(10);
        while self.process.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ended_already = self.process.kill();
        let _ended_already = self.process.wait();
    }
}

/// Decodes base64.
fn decoded(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::with_capacity(text.len() / 4 * 3));
    for digit in text.bytes().filter_map(value) {
        bits = (bits << 6) | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn base64_is_decoded() {
        assert_eq!(decoded("Zm9vYg=="), b"foob");
        assert_eq!(decoded("iVBORw0K"), b"\x89PNG\r\n");
        assert!(decoded("").is_empty());
    }
}
