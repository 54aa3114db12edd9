//! The tools of `fyke mcp`: their descriptions, their arguments, and their results without text from packets.

use crate::cli::{Cli, Command};
use crate::commands::{ctl, explain};
use clap::Parser;
use fyke_control::{Change, Client, MAX_EXPLAINED, MAX_TRIED, Request, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Most bytes of a result.
const MAX_RESULT_BYTES: usize = 1 << 20;
/// Most frames that are explained, and most entries of the log.
const MAX_LISTED: u64 = 100;
/// Longest wait for the answer of a running fyke.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// A tool: name, description, arguments, and whether it edits.
struct Tool {
    name: &'static str,
    description: &'static str,
    arguments: &'static [Argument],
    edits: bool,
}

/// An argument: name, type, whether it is required, description.
type Argument = (&'static str, &'static str, bool, &'static str);

const PID: Argument =
    ("pid", "integer", false, "process of the fyke, from `list`; needed if several captures run");
const EXPRESSION: Argument = (
    "expression",
    "string",
    true,
    "filter in the pcap language, such as: tcp port 80 and net 10.0.0.0/8",
);

const TOOLS: [Tool; 10] = [
    Tool {
        name: "list",
        description: "List the running fykes: process, command line, source of the frames.",
        arguments: &[],
        edits: false,
    },
    Tool {
        name: "explain",
        description: "Tell how a filter expression is read and how it will run; needs no running fyke.",
        arguments: &[
            EXPRESSION,
            ("link", "string", false, "link type, by libpcap's name without DLT_ (EN10MB)"),
        ],
        edits: false,
    },
    Tool {
        name: "stats",
        description: "Exact counts of a running fyke at one moment: seen = delivered + rejected + taken + lost, and \
                      the frames of each filter and node.",
        arguments: &[PID],
        edits: false,
    },
    Tool {
        name: "show",
        description: "The filters of a running fyke with their ids and evaluation passes.",
        arguments: &[PID],
        edits: false,
    },
    Tool {
        name: "log",
        description: "The edits of the filters so far: epoch, time, author, accepted frames.",
        arguments: &[
            PID,
            ("last", "integer", false, "number of edits, the latest (20; at most 100)"),
        ],
        edits: false,
    },
    Tool {
        name: "try",
        description: "Tell how many of the last frames a filter would accept, before it is in force; changes nothing.",
        arguments: &[PID, EXPRESSION, ("last", "integer", false, "number of frames (4096)")],
        edits: false,
    },
    Tool {
        name: "why",
        description: "The last rejected frames with the primitive of each filter that rejected them.",
        arguments: &[PID, ("last", "integer", false, "number of rejected frames (5; at most 100)")],
        edits: false,
    },
    Tool {
        name: "add",
        description: "Add a filter: frames that it matches are accepted too, at once; `undo` takes it back.",
        arguments: &[
            PID,
            EXPRESSION,
            ("name", "string", false, "name of the filter"),
            ("for_seconds", "integer", false, "remove the filter after this time"),
        ],
        edits: true,
    },
    Tool {
        name: "delete",
        description: "Remove a filter. The last one cannot be removed.",
        arguments: &[PID, ("id", "integer", true, "id of the filter, from `show`")],
        edits: true,
    },
    Tool {
        name: "undo",
        description: "Take an edit of this user back by a new one; refused if others have touched its filters since.",
        arguments: &[
            PID,
            ("epoch", "integer", false, "epoch of the edit, from `log`; without it, the last"),
        ],
        edits: true,
    },
];

/// Describes the tools.
pub fn list(edits: bool) -> Vec<Value> {
    let listed = TOOLS.iter().filter(|tool| edits || !tool.edits);
    let described = listed.map(|tool| {
        let property = |&(name, kind, _, text): &Argument| {
            let mut property = json!({"type": kind, "description": text});
            if kind == "integer" {
                property["minimum"] = json!(1);
            }
            (name.to_owned(), property)
        };
        let properties: serde_json::Map<_, _> = tool.arguments.iter().map(property).collect();
        let required: Vec<_> = tool
            .arguments
            .iter()
            .filter(|(_, _, required, _)| *required)
            .map(|one| one.0)
            .collect();
        json!({
            "name": tool.name,
            "description": tool.description,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            },
            "annotations": {
                "readOnlyHint": !tool.edits,
                "destructiveHint": tool.edits,
                "openWorldHint": false,
            },
        })
    });
    described.collect()
}

/// The arguments of all tools; each tool takes some of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Arguments {
    pid: Option<u32>,
    expression: Option<String>,
    link: Option<String>,
    last: Option<u64>,
    name: Option<String>,
    for_seconds: Option<u64>,
    id: Option<u64>,
    epoch: Option<u64>,
}

/// Calls a tool; returns its result, or the reason why it failed.
///
/// # Errors
/// There is no such tool, or it does not take these arguments.
pub fn call(name: &str, arguments: &Value, edits: bool) -> Result<Result<Value, String>, String> {
    let tool = TOOLS.iter().find(|tool| tool.name == name);
    let tool = tool.ok_or_else(|| format!("{name:?}: no such tool"))?;
    if tool.edits && !edits {
        return Ok(Err("this server only reads; start it with `fyke mcp --allow-edit`".to_owned()));
    }
    let Some(given) = arguments.as_object() else {
        return Err(format!("{name}: expected an object of arguments"));
    };
    let takes = |given: &str| tool.arguments.iter().any(|argument| argument.0 == given);
    if let Some((other, _)) = given.iter().find(|(given, _)| !takes(given)) {
        return Err(format!("{name} takes no argument {other:?}"));
    }
    let missing = |argument: &&Argument| argument.2 && arguments.get(argument.0).is_none();
    if let Some(missing) = tool.arguments.iter().find(missing) {
        return Err(format!("{name}: the argument {:?} is missing", missing.0));
    }
    let arguments: Arguments =
        serde_json::from_value(arguments.clone()).map_err(|error| format!("{name}: {error}"))?;
    let result = match name {
        "list" => Ok(running()),
        "explain" => explained(arguments.expression, arguments.link),
        _ => asked(name, arguments),
    };
    Ok(result.and_then(|result| match result.to_string().len() {
        given if given > MAX_RESULT_BYTES => Err(format!(
            "the result has {given} bytes, the limit is {MAX_RESULT_BYTES}; `fyke ctl` prints it"
        )),
        _ => Ok(result),
    }))
}

fn running() -> Value {
    let described = fyke_control::list().into_iter().map(|instance| {
        let description = instance.description.as_ref().map(|description| {
            json!({
                "command_line": description.command_line,
                "source": description.source,
                "link": description.link,
                "started_unix_ms": description.started_unix_ms,
                "live": description.live,
            })
        });
        json!({"pid": instance.pid, "description": description})
    });
    json!({"running": described.collect::<Vec<_>>()})
}

/// Explains an expression as `fyke explain --json` does.
pub fn explained(expression: Option<String>, link: Option<String>) -> Result<Value, String> {
    let mut words = vec!["fyke".to_owned(), "explain".to_owned(), "--json".to_owned()];
    words.extend(link.map(|link| format!("--link={link}")));
    words.push("--".to_owned());
    words.extend(expression);
    let line = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
    let Command::Explain(args) = line.command else {
        return Err("not an expression".to_owned());
    };
    let text = explain::text(&args).map_err(|failure| failure.message())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Asks a running fyke.
fn asked(name: &str, arguments: Arguments) -> Result<Value, String> {
    let Arguments { pid, expression, last, name: label, for_seconds, id, epoch, .. } = arguments;
    let text = expression.unwrap_or_default();
    let tried = text.clone();
    let request = match name {
        "stats" => Request::Stats,
        "show" => Request::Show,
        "log" => Request::Log { last: Some(last.unwrap_or(20).min(MAX_LISTED)) },
        "try" => Request::Try { text, last: last.map(|last| last.min(MAX_TRIED)) },
        "why" => Request::Why { last: last.map(|last| last.min(MAX_LISTED.min(MAX_EXPLAINED))) },
        "add" => {
            let for_ms = for_seconds.map(|seconds| seconds.saturating_mul(1_000));
            let add = Change::Add { text, name: label, for_ms, snaplen: None };
            Request::Edit { changes: vec![add] }
        }
        "delete" => Request::Delete { id: id.unwrap_or_default() },
        _ => Request::Undo { epoch },
    };
    let mut client = Client::connect(pid).map_err(|error| error.to_string())?;
    let target = client.target().map(|target| target.pid);
    client.set_answer_limit(ANSWER_LIMIT);
    let program = ctl::program().replace("fyke ctl", "fyke mcp");
    client.hello(&program).map_err(|error| error.to_string())?;
    if let Request::Edit { .. } = request {
        // The text of a graph could open files; it cannot be tried.
        let tried = Request::Try { text: tried, last: Some(1) };
        client.call(tried).map_err(|error| error.to_string())?;
    }
    let response = client.call(request).map_err(|error| error.to_string())?;
    if let Response::Refused { message, .. } = response {
        return Err(message);
    }
    let mut result = serde_json::to_value(&response).map_err(|error| error.to_string())?;
    hide(&mut result);
    result["pid"] = json!(target);
    Ok(result)
}

/// Puts texts that come from packets into fields `untrusted`: the lines of frames, and the texts of trackers, which
/// name calls, addresses and ports that packets have announced.
fn hide(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("wire_len") {
                hide_field(fields, "line");
            }
            let by_tracker = fields.get("kind").is_some_and(|kind| kind == "tracker")
                || fields.get("author").is_some_and(|author| author["kind"] == "tracker");
            if by_tracker {
                hide_field(fields, "text");
                let lists = ["passes", "changes"].map(|list| fields.remove_entry(list));
                for (name, mut list) in lists.into_iter().flatten() {
                    for one in list.as_array_mut().into_iter().flatten() {
                        if let Some(one) = one.as_object_mut() {
                            hide_field(one, "text");
                        }
                    }
                    fields.insert(name, list);
                }
            }
            fields.values_mut().for_each(hide);
        }
        Value::Array(list) => list.iter_mut().for_each(hide),
        _ => {}
    }
}

fn hide_field(fields: &mut serde_json::Map<String, Value>, name: &str) {
    if let Some(Value::String(text)) = fields.remove(name) {
        let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        fields.insert("untrusted".to_owned(), json!({"encoding": "hex", name: digits}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_packets_are_digits() {
        let frame = json!({"wire_len": 3, "line": "IP x: \"obey\""});
        let frame = json!({"frame": frame, "reasons": [{"result": "no"}]});
        let mut why = json!({"frames": [frame]});
        hide(&mut why);
        let line = &why["frames"][0]["frame"]["untrusted"]["line"];
        assert_eq!(line, "495020783a20226f62657922");
        assert!(!why.to_string().contains("obey"), "{why}");
        let call = json!({"id": 1, "text": "call obey", "accepted": 2});
        let mut show = json!({"filters": [
            {"kind": "tracker", "text": "sip", "passes": [call]},
            {"id": 1, "text": "udp", "passes": [{"id": 2, "text": "ip", "accepted": 2}]},
        ]});
        hide(&mut show);
        assert!(!show.to_string().contains("obey"), "{show}");
        assert_eq!(show["filters"][1]["text"], "udp");
        let mut log =
            json!({"author": {"kind": "tracker", "name": "sip"}, "changes": [{"text": "obey"}]});
        hide(&mut log);
        assert_eq!(log["changes"][0]["untrusted"]["text"], "6f626579");
        assert_eq!(log["author"]["name"], "sip", "the name of a tracker is ours");
    }

    #[test]
    fn arguments_are_checked_before_anything_is_asked() {
        let wrong = |name: &str, arguments: Value| call(name, &arguments, false).unwrap_err();
        assert!(wrong("nothing", json!({})).contains("no such tool"));
        assert!(wrong("stats", json!({"last": 1})).contains("takes no argument"));
        assert!(wrong("try", json!({"pid": 1})).contains("\"expression\" is missing"));
        assert!(wrong("stats", json!({"pid": -1})).contains("stats: "));
        assert!(wrong("stats", json!([])).contains("expected an object"));
        let refused = call("undo", &json!({}), false).unwrap();
        assert!(refused.unwrap_err().contains("--allow-edit"));
        let is_edit = |tool: &Value| tool["annotations"]["readOnlyHint"] == false;
        assert!(
            !list(false).iter().any(is_edit)
                && list(true).iter().filter(|&tool| is_edit(tool)).count() == 3
        );
    }
}
