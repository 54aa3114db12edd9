//! `fyke ctl --json watch` and `stats` of every kind of running fyke are as `docs/counts.schema.json` describes, and
//! `log`, `try`, `why`, `frames`, `show` and edits as `docs/answers.schema.json` does.

mod common;

use common::{FYKE, Running, folder, inside, send, veth};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

fn schema() -> Value {
    schema_of("counts.schema.json")
}

fn schema_of(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn is_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("the schema has the type {other}"),
    }
}

/// Checks a value; the reason with its place if it does not fit. A word of the schema that is not checked is an error.
fn check(value: &Value, schema: &Value, root: &Value, place: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("{place}: {why}: {value}"));
    for (word, rule) in schema.as_object().unwrap() {
        match word.as_str() {
            "$schema" | "title" | "description" | "$defs" => {}
            "$ref" => {
                let (file, pointer) = rule.as_str().unwrap().split_once('#').unwrap();
                let other = (!file.is_empty()).then(|| schema_of(file));
                let root = other.as_ref().unwrap_or(root);
                check(value, root.pointer(pointer).unwrap(), root, place)?;
            }
            "oneOf" => {
                let rules = rule.as_array().unwrap().iter();
                let (fitting, other): (Vec<_>, Vec<_>) =
                    rules.map(|rule| check(value, rule, root, place)).partition(Result::is_ok);
                if fitting.len() != 1 {
                    return wrong(&format!("{} of a list fit: {other:?}", fitting.len()));
                }
            }
            "type" => {
                let names = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                if !names.iter().any(|name| is_type(value, name.as_str().unwrap())) {
                    return wrong(&format!("not {rule}"));
                }
            }
            "enum" if !rule.as_array().unwrap().contains(value) => return wrong("not in the list"),
            "enum" => {}
            "minimum" if value.as_i64().is_some_and(|it| it < rule.as_i64().unwrap()) => {
                return wrong("too small");
            }
            "minimum" => {}
            "required" => {
                let missing = rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .find(|name| value.get(name.as_str().unwrap()).is_none());
                if let Some(name) = missing {
                    return wrong(&format!("{name} is missing"));
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(item, rule, root, &format!("{place}[{index}]"))?;
                }
            }
            "properties" | "additionalProperties" => {
                for (name, item) in value.as_object().into_iter().flatten() {
                    let named = &schema["properties"][name];
                    let rule =
                        if named.is_null() { &schema["additionalProperties"] } else { named };
                    match rule.is_object() {
                        true => check(item, rule, root, &format!("{place}.{name}"))?,
                        false => return wrong(&format!("{name} is not in the schema")),
                    }
                }
            }
            other => panic!("the test does not check {other}"),
        }
    }
    Ok(())
}

fn fits(value: &Value) {
    let schema = schema();
    if let Err(why) = check(value, &schema, &schema, "line") {
        panic!("{why}");
    }
}

fn counts(running: &Running) -> Value {
    let value = serde_json::from_str(&running.ctl(&["stats", "--json"])).unwrap();
    fits(&value);
    value
}

/// Asks for an answer that `docs/answers.schema.json` describes.
fn answer(running: &Running, words: &[&str]) -> Value {
    let value = serde_json::from_str(&running.ctl(&[&["--json"], words].concat())).unwrap();
    let schema = schema_of("answers.schema.json");
    if let Err(why) = check(&value, &schema, &schema, "answer") {
        panic!("{words:?}: {why}");
    }
    value
}

/// Reads lines of `watch` until all frames have been counted.
fn watched(running: &Running) {
    let mut watch = Command::new(FYKE);
    watch.args([
        "ctl",
        "--json",
        "--pid",
        &running.child.id().to_string(),
        "watch",
        "--interval-ms",
        "20",
    ]);
    watch.env("FYKE_RUNTIME_DIR", common::runtime());
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    send(20, 20);
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut seen = 0;
    for line in lines.take(500) {
        let value: Value = serde_json::from_str(&line).unwrap();
        fits(&value);
        seen = value["accounting"]["seen"].as_u64().unwrap();
        if seen >= 40 {
            break;
        }
    }
    assert!(seen >= 40, "both ends of the pair are captured: {seen}");
    let _ended = watch.kill();
    watch.wait().unwrap();
}

fn ended(mut running: Running) {
    running.signal("INT");
    assert!(running.end().success());
}

#[test]
fn the_counts_of_every_command_fit_the_schema() {
    if !inside("the_counts_of_every_command_fit_the_schema") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let start = |words: &[&str]| {
        let mut command = Command::new(FYKE);
        let running = Running::start(command.args(words).stdout(Stdio::null()));
        running.hear("edit: fyke ctl");
        running
    };
    let live = ["-i", "v1", "-i", "v0", "-w", "/dev/null", "--count-all", "udp port 5001"];
    let running = start(&[&["dump", "-Z", "root"][..], &live].concat());
    running.ctl(&["add", "--name", "voip", "--for", "5m", "udp port 5060"]);
    watched(&running);
    let value = counts(&running);
    assert_eq!((&value["edits"]["edits"], &value["edits"]["refused"]), (&1.into(), &0.into()));
    assert_eq!(value["accounting"]["interfaces"].as_array().unwrap().len(), 2);
    assert_eq!(value["filters"][1]["label"]["name"], "voip");
    let node =
        value["nodes"].as_array().unwrap().iter().find(|node| node["id"] == value["kept_at"]);
    assert_eq!(node.unwrap()["node"], "filter");
    running.ctl(&["pause"]);
    assert_eq!(counts(&running)["paused"], true);
    ended(running);

    let graph = "(device, expression=v1) > {n}(bpf, expression=udp) > (bucket, export=y)";
    let running = start(&["run", "-Z", "root", graph]);
    let value = counts(&running);
    assert_eq!(value["filters"][0]["kind"], "graph");
    let nodes = value["nodes"].as_array().unwrap();
    assert_eq!(nodes[1]["feeds"][0]["from"], nodes[0]["id"]);
    assert_eq!(value["kept_at"], nodes[1]["id"]);
    ended(running);
    let file = format!("udp => {}", path("udp.pcap").display());
    let running = start(&["demux", "-Z", "root", "-i", "v1", &file]);
    assert!(counts(&running)["kept_at"].is_u64());
    ended(running);
    let mut command = Command::new(FYKE);
    let service = Running::start(command.args(["serve", "-Z", "root", "-i", "v1"]));
    service.hear("serving v1");
    let mut command = Command::new(FYKE);
    command.args(["dump", "-i", "serve:v1", "-w", "/dev/null", "udp"]);
    let reader = Running::start(command.stdout(Stdio::null()));
    reader.hear("listening on serve:v1");
    let value = counts(&service);
    assert_eq!(value["readers"][0]["pid"], reader.child.id(), "{value}");
    ended(reader);
    ended(service);
}

#[test]
fn the_check_finds_what_does_not_fit() {
    let schema = schema();
    let wrong = |change: &dyn Fn(&mut Value)| {
        let mut value = serde_json::json!({
            "response": "stats", "epoch": 1, "uptime_ms": 2, "filters": [],
            "accounting":
                {"seen": 1, "delivered": 1, "rejected": 0, "taken": 0, "lost": {"ring": 1}},
            "target": {"pid": 7, "source": null},
        });
        assert_eq!(check(&value, &schema, &schema, "line"), Ok(()));
        change(&mut value);
        check(&value, &schema, &schema, "line").unwrap_err()
    };
    assert!(wrong(&|value| value["more"] = 1.into()).contains("more is not in the schema"));
    assert!(wrong(&|value| value["epoch"] = "1".into()).contains("line.epoch: not"));
    assert!(wrong(&|value| value["response"] = "ok".into()).contains("not in the list"));
    assert!(
        wrong(&|value| value["accounting"]["lost"]["ring"] = (-1).into()).contains("too small")
    );
    let without = wrong(&|value| drop(value["accounting"].as_object_mut().unwrap().remove("seen")));
    assert!(without.contains("\"seen\" is missing"), "{without}");
}

#[test]
fn the_answers_fit_the_schema() {
    if !inside("the_answers_fit_the_schema") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let file = path("out.pcapng").display().to_string();
    let mut command = Command::new(FYKE);
    // Without a filter in the kernel, rejected frames are kept.
    command.args(["dump", "-Z", "root", "-i", "v1", "-w", &file, "--count-all", "udp port 5001"]);
    let running = Running::start(command.stdout(Stdio::null()));
    running.hear("edit: fyke ctl");
    running.ctl(&["add", "--name", "voip", "--for", "5m", "--snaplen", "96", "udp port 5060"]);
    running.ctl(&["undo"]);
    running.ctl(&["pause"]);
    running.ctl(&["start"]);
    running.ctl(&["add", "--name", "voip", "--for", "5m", "udp port 5060"]);
    send(10, 20);
    running.settle(10);
    let log = answer(&running, &["log"]);
    assert_eq!(log["entries"][0]["author"]["kind"], "program");
    assert_eq!(log["entries"][1]["changes"][0]["label"]["snaplen"], 96);
    assert_eq!(log["entries"][1]["undone"], log["entries"][2]["epoch"]);
    assert_eq!(log["entries"][3]["pause"], true);
    let tried = answer(&running, &["try", "udp port 5002"]);
    assert_eq!((&tried["accepted"], &tried["new"]), (&5.into(), &5.into()));
    assert!(tried["first"][0]["line"].as_str().unwrap().contains("10.0.0.2.5002"), "{tried}");
    let why = answer(&running, &["why", "--last", "2"]);
    assert_eq!(why["frames"].as_array().unwrap().len(), 2);
    assert_eq!(why["frames"][0]["reasons"].as_array().unwrap().len(), 2);
    let frames = answer(&running, &["frames", "--last", "4"]);
    assert_eq!(frames["frames"].as_array().unwrap().len(), 4);
    assert_eq!(frames["frames"][0]["bytes"].as_str().unwrap().len(), 2 * 62, "{frames}");
    let ok = answer(&running, &["add", "udp port 5061"]);
    assert_eq!((&ok["response"], ok["ids"].as_array().unwrap().len()), (&"ok".into(), 1));
    answer(&running, &["undo"]);
    let shown = answer(&running, &["show"]);
    assert_eq!(shown["filters"][1]["label"]["name"], "voip");
    assert!(shown["filters"][0]["passes"][0]["text"].is_string());
    ended(running);
    let mut command = Command::new(FYKE);
    command.args(["run", "-Z", "root", "(device, expression=v1) > (packetcount)"]);
    let running = Running::start(command.stdout(Stdio::null()));
    running.hear("edit: fyke ctl");
    let shown = answer(&running, &["show"]);
    assert_eq!(shown["nodes"].as_array().unwrap().len(), 2, "{shown}");
    ended(running);

    let schema = schema_of("answers.schema.json");
    // Over the WebSocket answers have no target, and a refusal is one.
    for refusal in [
        serde_json::json!({"response": "error", "message": "expected a port"}),
        serde_json::json!({"response": "refused", "change": 2, "message": "expected a port"}),
    ] {
        assert_eq!(check(&refusal, &schema, &schema, "answer"), Ok(()));
    }
    let wrong =
        serde_json::json!({"response": "log", "entries": [], "forgotten": -1, "target": {}});
    assert!(check(&wrong, &schema, &schema, "answer").unwrap_err().contains("0 of a list fit"));
}
