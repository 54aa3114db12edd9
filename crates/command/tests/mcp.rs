//! `fyke mcp`: a client of the Model Context Protocol asks about a running capture, and edits it.

mod common;

use common::{FYKE, Running, folder, inside, runtime, send, veth};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running `fyke mcp`, and the number of the last message.
struct Server {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    messages: u64,
}

impl Server {
    /// Starts the server and does the handshake.
    fn start(words: &[&str]) -> Server {
        let mut command = Command::new(FYKE);
        command.arg("mcp").args(words).env("FYKE_RUNTIME_DIR", runtime()).env_remove("SUDO_UID");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut server = Server { child, to, from, messages: 0 };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {},
                           "clientInfo": {"name": "test", "version": "1"}});
        let answer = server.ask("initialize", &hello);
        assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
        assert_eq!(answer["result"]["serverInfo"]["name"], "fyke");
        server.send(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        server
    }

    fn send(&mut self, line: &[u8]) {
        let to = self.to.as_mut().unwrap();
        to.write_all(line).unwrap();
        to.write_all(b"\n").unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.messages += 1;
        let id = self.messages;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(message.to_string().as_bytes());
        let answer = self.receive();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(id)), "{answer}");
        answer
    }

    /// Calls a tool; returns its result.
    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        let result = &answer["result"];
        assert_eq!(result["isError"], false, "{tool} {arguments}: {answer}");
        let text: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, result["structuredContent"]);
        text
    }

    /// Calls a tool that fails; returns the reason.
    fn fail(&mut self, tool: &str, arguments: &Value) -> String {
        let answer = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        assert_eq!(answer["result"]["isError"], true, "{tool} {arguments}: {answer}");
        answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Ends its standard input; it must end.
    fn end(mut self) {
        drop(self.to.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

/// The text of hexadecimal digits.
fn decoded(digits: &Value) -> String {
    let digits = digits.as_str().unwrap();
    let bytes = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16));
    String::from_utf8(bytes.collect::<Result<_, _>>().unwrap()).unwrap()
}

#[test]
fn an_assistant_reads_a_capture_and_edits_it_where_it_may() {
    if !inside("an_assistant_reads_a_capture_and_edits_it_where_it_may") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let mut command = Command::new(FYKE);
    command.args(["dump", "-Z", "root", "-i", "v1", "--count-all", "-w"]).arg(path("out.pcapng"));
    let mut running = Running::start(command.arg("udp port 5001").stdout(Stdio::null()));
    running.hear("listening on");
    send(20, 20);
    running.settle(20);

    let mut reader = Server::start(&[]);
    let tools = reader.ask("tools/list", &json!({}));
    let names: Vec<_> =
        tools["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(json!(names), json!(["list", "explain", "stats", "show", "log", "try", "why"]));
    let list = reader.call("list", &json!({}));
    assert_eq!(list["running"][0]["pid"], running.child.id());
    // The counts are those of `ctl stats`.
    let stats = reader.call("stats", &json!({}));
    let counted: Value = serde_json::from_str(&running.ctl(&["stats", "--json"])).unwrap();
    assert_eq!(stats["accounting"], counted["accounting"]);
    assert_eq!(
        (&stats["accounting"]["seen"], &stats["accounting"]["delivered"]),
        (&json!(20), &json!(10))
    );
    assert_eq!(stats["pid"], running.child.id());
    let tried = reader.call("try", &json!({"expression": "udp", "pid": running.child.id()}));
    assert_eq!((&tried["accepted"], &tried["new"]), (&json!(20), &json!(10)));
    // Text of packets is digits, marked as not trusted.
    let why = reader.call("why", &json!({"last": 2}));
    assert_eq!(why["frames"].as_array().unwrap().len(), 2);
    let frame = &why["frames"][0];
    assert_eq!(frame["reasons"][0]["decided"], "udp port 5001");
    let hidden = &frame["frame"]["untrusted"];
    assert_eq!(hidden["encoding"], "hex");
    assert!(decoded(&hidden["line"]).contains("10.0.0.1.4000 > 10.0.0.2.5002"), "{frame}");
    assert!(!why.to_string().contains("10.0.0.2"), "{why}");
    let explained = reader.call("explain", &json!({"expression": "tcp port 80"}));
    assert_eq!(explained["text"], "tcp port 80");
    assert!(reader.fail("explain", &json!({"expression": "tcp prot 80"})).contains('^'));
    assert!(reader.fail("try", &json!({"expression": "-r /etc/passwd"})).contains('^'));
    assert!(reader.fail("stats", &json!({"pid": 1})).contains("id 1"));
    assert!(reader.fail("add", &json!({"expression": "arp"})).contains("--allow-edit"));
    // A message that is too long, or nonsense, does not end it.
    reader.send(&vec![b'['; 3 << 20]);
    assert!(reader.receive()["error"]["message"].as_str().unwrap().contains("at most"));
    reader.send(b"\xff{");
    assert_eq!(reader.receive()["error"]["code"], -32_700);
    assert_eq!(reader.ask("ping", &json!({}))["result"], json!({}));
    reader.end();

    let mut editor = Server::start(&["--allow-edit"]);
    let added = editor.call("add", &json!({"expression": "udp port 5002", "name": "second"}));
    assert_eq!((&added["epoch"], &added["ids"]), (&json!(2), &json!([2])));
    send(10, 20);
    running.settle(30);
    assert_eq!(editor.call("stats", &json!({}))["accounting"]["delivered"], 20);
    assert!(running.ctl(&["log"]).contains("(fyke mcp, process "), "{}", running.ctl(&["log"]));
    assert!(editor.fail("add", &json!({"expression": "udp dst prot 9"})).contains('^'));
    // A graph would open files.
    let graph = json!({"expression": "(pcapin,/etc/passwd) > (print)"});
    assert!(editor.fail("add", &graph).contains('^'));
    assert_eq!(editor.call("undo", &json!({}))["epoch"], 3);
    assert!(editor.fail("delete", &json!({"id": 1})).contains("last"));
    let show = editor.call("show", &json!({}));
    assert_eq!(show["filters"][0]["text"], "udp port 5001");
    assert_eq!(editor.call("log", &json!({}))["entries"].as_array().unwrap().len(), 3);
    editor.end();
    running.signal("INT");
    assert!(running.end().success());
}
