//! `fyke web` in a real browser (Chromium): the page shows what `ctl stats` prints, and edits; and what other pages and
//! programs get from it.
//!
//! `FYKE_PICTURES=FOLDER` keeps pictures of the page, to be looked at.
#![cfg(feature = "web")]

mod common;
#[path = "common/web.rs"]
mod served;

use common::{FYKE, Running, datagram, folder, inside, runtime, send, tool, veth};
use fyke_testkit::browser::Browser;
use fyke_testkit::pcap;
use serde_json::{Value, json};
use served::{Web, capture, keep_picture, stats};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ANSWER: &str = "document.getElementById('answer').textContent";

/// Empties the line of the filter, and types a text into it.
fn type_filter(browser: &mut Browser, text: &str) {
    browser.value("document.getElementById('text').select()");
    browser.type_text(text);
}

/// Every node as in `ctl stats`.
fn nodes_are_as_counted(browser: &mut Browser, running: &Running) {
    let counted = stats(running);
    for node in counted["nodes"].as_array().unwrap() {
        let [arrived, passed, rejected, taken, lost] =
            ["arrived", "passed", "rejected", "taken", "lost"]
                .map(|part| node[part].as_u64().unwrap());
        assert_eq!(arrived, passed + rejected + taken + lost, "{node}");
        let (name, sum) = (
            node["node"].as_str().unwrap(),
            format!(
                "{arrived} arrived = {passed} passed + {rejected} rejected + {taken} taken + {lost} lost"
            ),
        );
        browser.wait_for(&format!(
            "[...document.querySelectorAll('#nodes .bar')].some(bar => \
             bar.getAttribute('aria-label') === '{name}: {sum}')"
        ));
    }
}

fn edits_are_tried_and_taken_back(browser: &mut Browser, running: &Running) {
    // The key `/` leads to the line; a text with an error is answered while it is typed.
    browser.press("/");
    browser.wait_for("document.activeElement.id === 'text'");
    type_filter(browser, "udp dst prot 9");
    browser.wait_for(&format!("{ANSWER}.includes('^')"));
    browser.wait_for("document.getElementById('text').getAttribute('aria-invalid') === 'true'");
    keep_picture(browser, "refused.png");
    browser.press("Enter");
    assert_eq!(stats(running)["epoch"], 1, "nothing has changed");
    type_filter(browser, "udp");
    browser.wait_for(&format!(
        "{ANSWER}.startsWith('would accept 40 of the last 40 frames') && {ANSWER}.includes('20 of them new')"
    ));
    keep_picture(browser, "tried.png");
    browser.press("Enter");
    browser.wait_for(&format!("{ANSWER}.startsWith('filter 2, epoch 2')"));
    browser.wait_for("document.querySelectorAll('#filters li').length === 2");
    browser.wait_for("document.querySelectorAll('#chart line').length === 1");
    assert!(running.ctl(&["log"]).contains("(fyke web, process "), "{}", running.ctl(&["log"]));
    send(10, 20);
    running.settle(50);
    browser
        .wait_for("document.getElementById('sum').textContent.startsWith('50 seen = 30 accepted')");
    // In the line, `u` is a letter; outside, it takes the edit back.
    browser.press("Escape");
    browser.press("u");
    browser.wait_for(&format!("{ANSWER}.includes('takes back epoch 2')"));
    assert_eq!(stats(running)["epoch"], 3);
    browser.press("r");
    browser.wait_for("document.querySelectorAll('#frames summary').length === 20");
    let frames = "document.getElementById('frames').textContent";
    browser.wait_for(&format!("{frames}.includes('filter 1: udp port 5001: no')"));
    let shown = browser.value(frames);
    let shown = shown.as_str().unwrap();
    assert!(shown.contains("IP 10.0.0.1.4000 > 10.0.0.2.5002  (EN10MB"), "no payload: {shown}");
    // The bytes end after the headers, of Ethernet, IPv4 and UDP.
    let bytes = browser.value("document.querySelector('#frames .bytes').textContent");
    let bytes = bytes.as_str().unwrap();
    assert!(bytes.contains("08 00 45") && bytes.ends_with("\n… 20 more bytes"), "{bytes}");
    edges_have_frames(browser);
}

/// The edges of the running graph have rates, and those of the filter their last frames.
fn edges_have_frames(browser: &mut Browser) {
    let edges = "[...document.querySelectorAll('#graph .edge')]";
    browser.wait_for(&format!("{edges}.length >= 2"));
    browser.wait_for(&format!(
        "{edges}.every(one => /^edge from \\S+ to \\S+: [0-9,]+[/]s$/.test(one.getAttribute('aria-label')))"
    ));
    browser.value(&format!(
        "{edges}.find(one => one.getAttribute('aria-label').startsWith('edge from filter')).focus()"
    ));
    browser.press("Enter");
    let past = "document.getElementById('why-past').textContent";
    browser.wait_for(&format!("{past}.includes('accepted ones among')"));
    browser.wait_for("document.getElementById('frames').textContent.includes('✓')");
    browser.wait_for("document.querySelector('#graph .edge.marked') !== null");
    browser.press("r");
    browser.wait_for(&format!("{past}.includes('rejected ones among')"));
}

#[test]
fn the_page_shows_the_counts_and_edits() {
    if !inside("the_page_shows_the_counts_and_edits") {
        return;
    }
    let (_folder, path) = folder();
    let Some(mut browser) = Browser::start(&path("profile")) else { return };
    veth();
    let mut running = capture(&path("out.pcapng"));
    let mut web = Web::start(&[]);
    browser.look(1280, 900, false);
    browser.open(&web.url());
    browser.wait_for("document.body.dataset.state === 'runs'");
    send(40, 20);
    running.settle(40);
    browser.wait_for(
        "document.getElementById('sum').textContent === \
         '40 seen = 20 accepted + 20 rejected + 0 taken + 0 lost'",
    );
    nodes_are_as_counted(&mut browser, &running);
    assert_eq!(
        browser.value("document.querySelector('#sum-bar .passed').style.width"),
        "50%",
        "the bar is the sum"
    );
    edits_are_tried_and_taken_back(&mut browser, &running);
    browser.press("l");
    browser.wait_for("document.querySelectorAll('#entries > li').length === 3");
    browser.value("document.querySelector('#frames details').open = true");
    keep_picture(&mut browser, "wide.png");
    look_at_sizes(&mut browser);
    // The capture ends and is started again.
    running.signal("INT");
    assert!(running.end().success());
    browser.wait_for("document.body.dataset.state === 'ended'");
    let mut second = capture(&path("out.pcapng"));
    browser.wait_for("document.body.dataset.state === 'runs'");
    browser
        .wait_for(&format!("document.getElementById('fykes').value === '{}'", second.child.id()));
    send(4, 20);
    browser
        .wait_for("document.getElementById('sum').textContent.startsWith('4 seen = 2 accepted')");
    second.signal("INT");
    assert!(second.end().success());
    web.running.signal("INT");
    assert!(web.running.end().success());
    browser.wait_for("document.body.dataset.state === 'lost'");
}

/// Enter is pressed twice, while the text is being tried: one edit, and its answer stays.
#[test]
fn an_edit_is_made_once_and_its_answer_stays() {
    if !inside("an_edit_is_made_once_and_its_answer_stays") {
        return;
    }
    let (_folder, path) = folder();
    let Some(mut browser) = Browser::start(&path("profile")) else { return };
    veth();
    let mut running = capture(&path("out.pcapng"));
    let web = Web::start(&[]);
    browser.open(&web.url());
    browser.wait_for("document.body.dataset.state === 'runs'");
    send(4_000, 20);
    running.settle(4_000);
    browser.value(
        "{ const [line, form] = [document.getElementById('text'), document.getElementById('edit')]; \
         line.value = 'udp port 5002'; line.dispatchEvent(new Event('input')); \
         form.requestSubmit(); form.requestSubmit(); }",
    );
    browser.wait_for(&format!("{ANSWER}.startsWith('filter 2, epoch 2')"));
    std::thread::sleep(Duration::from_millis(500));
    let answer = browser.value(ANSWER);
    assert!(answer.as_str().unwrap().starts_with("filter 2, epoch 2"), "{answer}");
    assert_eq!(stats(&running)["epoch"], 2);
    assert_eq!(browser.value("document.getElementById('text').value"), "");
    running.signal("INT");
    assert!(running.end().success());
    web.end();
}

/// The page fits into every window, and every control has a name.
fn look_at_sizes(browser: &mut Browser) {
    for (width, height, dark, name) in [
        (360, 740, true, "phone.png"),
        (3840, 2160, true, "wall.png"),
        (1280, 900, true, "dark.png"),
    ] {
        browser.look(width, height, dark);
        browser.wait_for(&format!("window.innerWidth === {width}"));
        let fits = "document.documentElement.scrollWidth <= window.innerWidth";
        browser.wait_for(fits);
        keep_picture(browser, name);
    }
    let unnamed = browser.value(
        "[...document.querySelectorAll('button, input, select, [role=img]')].filter(one => \
         !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length)).map(one => one.outerHTML)",
    );
    assert_eq!(unnamed, json!([]), "controls without a name");
}

/// Drops a file onto the page.
fn drop_file(browser: &mut Browser, name: &str, bytes: &[u8]) {
    let list: Vec<_> = bytes.iter().map(u8::to_string).collect();
    browser.value(&format!(
        "{{ const data = new DataTransfer(); \
         data.items.add(new File([Uint8Array.from([{}])], '{name}')); \
         window.dispatchEvent(new DragEvent('drop', {{ dataTransfer: data, cancelable: true }})); }}",
        list.join(",")
    ));
}

/// Types a text into a field in place of its text.
fn type_into(browser: &mut Browser, id: &str, text: &str) {
    browser.value(&format!("document.getElementById('{id}').focus()"));
    browser.value(&format!("document.getElementById('{id}').select()"));
    browser.type_text(text);
}

#[test]
fn a_dropped_file_is_filtered_and_a_drawn_graph_runs_on_it() {
    if !inside("a_dropped_file_is_filtered_and_a_drawn_graph_runs_on_it") {
        return;
    }
    let (_folder, path) = folder();
    let Some(mut browser) = Browser::start(&path("profile")) else { return };
    tool("ip link set lo up");
    let frames: Vec<_> = (0..30).map(|number| datagram(5001 + number % 3, 20)).collect();
    let mut web = Web::start(&[]);
    browser.look(1280, 900, false);
    browser.open(&web.url());
    browser.wait_for("document.body.dataset.state === 'none'");
    drop_file(&mut browser, "x.pcap", &pcap::file(1, &frames));
    browser.wait_for("document.getElementById('file-note').textContent.startsWith('x.pcap: ')");
    browser.wait_for("document.querySelectorAll('#look-frames summary').length === 30");
    let answer = "document.getElementById('look-answer').textContent";
    type_into(&mut browser, "look-text", "udp dst prot 1");
    browser.press("Enter");
    browser.wait_for(&format!("{answer}.includes('^')"));
    type_into(&mut browser, "look-text", "udp port 5002");
    browser.press("Enter");
    browser
        .wait_for(&format!("{answer}.startsWith('30 seen = 10 accepted + 20 rejected + 0 lost')"));
    browser.wait_for("document.querySelectorAll('#look-frames summary').length === 10");
    let first = browser.value("document.querySelector('#look-frames').textContent");
    assert!(first.as_str().unwrap().contains("10.0.0.2.5002: UDP, length 20"), "{first}");
    // A graph is drawn by the controls of the page.
    let text = "document.getElementById('graph-text').value";
    browser.wait_for("document.querySelectorAll('#drawing .node').length === 2");
    browser
        .value("document.querySelector('#drawing .node').dispatchEvent(new MouseEvent('click'))");
    type_into(&mut browser, "parameters", "udp port 5003");
    browser.value("document.getElementById('append').click()");
    browser.wait_for("document.querySelectorAll('#drawing .node').length === 3");
    assert_eq!(
        browser.value(text),
        "(pcapin, expression=-) > [(packetcount) | (bpf, expression=\"udp port 5003\")]"
    );
    browser.value("document.getElementById('run').click()");
    browser.wait_for(
        "[...document.querySelectorAll('#drawing .node .line')].some(one => one.textContent === '30 → 10')",
    );
    keep_picture(&mut browser, "drawn.png");
    // What would open something is refused while it is typed.
    type_into(&mut browser, "graph-text", "(pcapin, expression=-) > (tofile, expression=/tmp/x)");
    browser.wait_for(
        "document.getElementById('drawn').textContent.includes('opens more than memory')",
    );
    browser.wait_for("document.getElementById('run').disabled");
    let look = json!({"look": "run", "file": 1, "graph": "(pcapin, /etc/passwd) > (packetcount)"});
    let refused = web.post("/api/look", "application/json", look.to_string().as_bytes());
    assert!(refused.1.contains("the only source"), "{refused:?}");
    // A file that is none.
    drop_file(&mut browser, "no.pcap", b"not a capture");
    browser.wait_for(&format!("{answer}.includes('neither pcap nor pcapng')"));
    keep_picture(&mut browser, "no_file.png");
    web.running.signal("INT");
    assert!(web.running.end().success());
    assert!(!web.running.said().contains("panicked"), "{}", web.running.said());
}

#[test]
fn a_drawn_graph_runs_live_with_rates_on_its_edges() {
    if !inside("a_drawn_graph_runs_live_with_rates_on_its_edges") {
        return;
    }
    let (_folder, path) = folder();
    veth();
    let mut command = Command::new(FYKE);
    command.args(["run", "-Z", "root", "{in}(device, v1) > (packetcount)"]);
    let mut running = Running::start(command.stdout(Stdio::null()));
    running.hear("edit: fyke ctl");
    let web = Web::start(&[]);
    only_graphs_that_open_nothing(&web, &running);
    if let Some(mut browser) = Browser::start(&path("profile")) {
        browser.look(1280, 900, false);
        browser.open(&web.url());
        drawn_live(&mut browser, &running);
    }
    running.signal("INT");
    assert!(running.end().success());
    web.end();
}

/// A page adds a graph with the source that runs; others would open something.
fn only_graphs_that_open_nothing(web: &Web, running: &Running) {
    let pid = running.child.id();
    for (text, why) in [
        ("(device, v1) > (tofile, /tmp/x)", "opens more than memory"),
        ("(device, lo) > (packetcount)", "one that runs: (device, expression=v1)"),
        ("(pcapin, /etc/passwd) > (packetcount)", "one that runs"),
        ("(device, v1) > {packets}()", "a node of another text"),
        ("udp", "^"),
    ] {
        let changes = json!([{"change": "add", "text": text}]);
        for request in [
            json!({"request": "add", "text": text}),
            json!({"request": "edit", "changes": changes}),
        ] {
            let answer = web.call(pid, &request);
            let message = answer["message"].as_str().unwrap_or_default();
            assert!(message.contains(why), "{text}: {answer}");
        }
    }
    assert_eq!(stats(running)["filters"].as_array().unwrap().len(), 1);
}

/// Draws a graph, runs it in the shown fyke while frames arrive, and stops it.
fn drawn_live(browser: &mut Browser, running: &Running) {
    browser.wait_for("document.body.dataset.state === 'runs'");
    browser.wait_for("document.querySelectorAll('#drawing .node').length === 2");
    browser
        .value("document.querySelector('#drawing .node').dispatchEvent(new MouseEvent('click'))");
    type_into(browser, "parameters", "udp port 5001");
    browser.value("document.getElementById('append').click()");
    browser.wait_for("document.querySelectorAll('#drawing .node').length === 3");
    browser.wait_for("!document.getElementById('live').disabled");
    browser.value("document.getElementById('live').click()");
    let answer = "document.getElementById('drawn').textContent";
    browser.wait_for(&format!("{answer}.startsWith('it runs as graph 2 of process ')"));
    let graphs = stats(running)["filters"].clone();
    let text = "(device, expression=v1) > [(packetcount) | (bpf, expression=\"udp port 5001\")]";
    assert_eq!(graphs[1]["text"], text, "{graphs}");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // At most two minutes.
            for _ in 0..2_400 {
                send(10, 20);
                std::thread::sleep(Duration::from_millis(50));
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let edges = "[...document.querySelectorAll('#drawing .edge .label')]";
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            browser.wait_for(&format!(
                "{edges}.length === 2 && {edges}.every(one => /^[1-9][0-9,]*[/]s$/.test(one.textContent))"
            ));
            keep_picture(browser, "live.png");
        }));
        stop.store(true, Ordering::Relaxed);
        shown.unwrap_or_else(|reason| std::panic::resume_unwind(reason));
    });
    // Another text while the first runs replaces it, as one edit.
    type_into(browser, "parameters", "udp port 5002");
    browser.value("document.getElementById('append').click()");
    browser.wait_for("document.querySelectorAll('#drawing .node').length === 4");
    browser.wait_for("!document.getElementById('live').disabled");
    browser.value("document.getElementById('live').click()");
    browser.wait_for(&format!("{answer}.startsWith('it runs as graph 3 of process ')"));
    // Beside the entry of what was removed.
    let graphs = || {
        let stats = stats(running);
        let entries = stats["filters"].as_array().unwrap().clone();
        entries.into_iter().filter(|entry| entry["kind"] != "removed").count()
    };
    assert_eq!(graphs(), 2);
    browser.value("document.getElementById('live-stop').click()");
    browser.wait_for(&format!("{answer}.startsWith('graph 3 is removed')"));
    assert_eq!(graphs(), 1);
}

#[test]
fn several_captures_are_on_one_page() {
    if !inside("several_captures_are_on_one_page") {
        return;
    }
    let (_folder, path) = folder();
    let Some(mut browser) = Browser::start(&path("profile")) else { return };
    veth();
    let mut first = capture(&path("one.pcapng"));
    let mut second = capture(&path("two.pcapng"));
    let web = Web::start(&[]);
    browser.look(1280, 900, true);
    browser.open(&web.url());
    browser.wait_for("document.querySelectorAll('#captures button').length === 2");
    send(40, 20);
    first.settle(40);
    second.settle(40);
    let named = |running: &Running| {
        let pid = running.child.id();
        format!(
            "[...document.querySelectorAll('#captures .bar')].some(bar => \
             bar.getAttribute('aria-label') === 'process {pid}: 20 of 40 accepted')"
        )
    };
    browser.wait_for(&named(&first));
    browser.wait_for(&named(&second));
    keep_picture(&mut browser, "several.png");
    for running in [&second, &first] {
        let pid = running.child.id();
        browser.value(&format!(
            "[...document.querySelectorAll('#captures button')].find(one => \
             one.textContent.startsWith('{pid} ')).click()"
        ));
        browser.wait_for(&format!("document.getElementById('fykes').value === '{pid}'"));
        browser.wait_for("document.getElementById('sum').textContent.startsWith('40 seen')");
    }
    second.signal("INT");
    assert!(second.end().success());
    browser.wait_for("document.getElementById('several').hidden");
    first.signal("INT");
    assert!(first.end().success());
}

#[test]
fn others_get_nothing_and_the_capture_notices_nothing() {
    if !inside("others_get_nothing_and_the_capture_notices_nothing") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let mut running = capture(&path("out.pcapng"));
    let pid = running.child.id();
    let mut web = Web::start(&[]);
    let secret = format!("Bearer {}", web.token);
    let own = [("Authorization", secret.as_str()), ("Content-Type", "application/json")];
    let body = json!({"pid": pid, "request": {"request": "stats"}}).to_string();
    let with = |more: &[(&str, &str)]| {
        let headers = [&own, more].concat();
        web.request("POST /api/call", &headers, body.as_bytes())
    };
    assert_eq!(with(&[]).0, 200);
    for (name, value, status) in [
        ("Origin", "http://evil.example", 403),
        ("Origin", "null", 403),
        ("Sec-Fetch-Site", "cross-site", 403),
        ("Host", "evil.example", 421),
        ("Host", "127.0.0.1.evil.example:80", 421),
    ] {
        let (given, answer) = with(&[(name, value)]);
        assert_eq!(given, status, "{name}: {value}: {answer}");
        assert!(!answer.contains("seen") && !answer.contains("udp"), "{answer}");
        // The page itself, too.
        assert_eq!(web.request("GET /", &[(name, value)], b"").0, status, "{name}: {value}");
    }
    for wrong in ["Bearer ", "Bearer 00000000000000000000000000000000", "Basic x", ""] {
        let headers = [("Authorization", wrong), ("Content-Type", "application/json")];
        for path in ["POST /api/call", "POST /api/events", "POST /api/file", "POST /api/look"] {
            assert_eq!(web.request(path, &headers, body.as_bytes()).0, 401, "{wrong:?}");
        }
    }
    // A form of another page has another type, and its question about the method is refused.
    let form = [("Authorization", secret.as_str()), ("Content-Type", "text/plain")];
    assert_eq!(web.request("POST /api/call", &form, body.as_bytes()).0, 415);
    assert_eq!(web.post("/api/file", "text/plain", b"x").0, 415);
    assert_eq!(web.request("OPTIONS /api/call", &[], b"").0, 405);
    assert_eq!(web.request("GET /api/events", &[], b"").0, 405);
    assert_eq!(web.request("GET /../../etc/passwd", &[], b"").0, 404);
    let (status, page) = web.request("GET /", &[], b"");
    assert!(status == 200 && page.contains("<title>fyke</title>") && !page.contains(&web.token));
    // Huge messages.
    assert_eq!(web.request("POST /api/call", &own, &vec![b' '; 300 << 10]).0, 413);
    let head = format!("GET /{} ", "x".repeat(100_000));
    assert!(matches!(web.request(&head, &[], b"").0, 0 | 400 | 414 | 431));
    for text in ["", "[]", "{", r#"{"pid":-1}"#, &"[".repeat(100_000)] {
        assert_eq!(web.request("POST /api/call", &own, text.as_bytes()).0, 400);
    }
    // Texts that are no filters: a graph opens no file.
    let graph = json!({"request": "add", "text": "(pcapin,/etc/passwd) > (print)"});
    assert_eq!(web.call(pid, &graph)["response"], "error");
    let endpoint = json!({"request": "add", "text": "udp => x.pcap"});
    assert!(web.call(pid, &endpoint)["message"].as_str().unwrap().contains("`fyke ctl add`"));
    let save = json!({"request": "save", "format": "pcap"});
    assert!(web.call(pid, &save)["message"].as_str().unwrap().contains("use fyke ctl"));
    assert!(
        web.call(1, &json!({"request": "stats"}))["message"].as_str().unwrap().contains("id 1")
    );
    flooded(&web, pid);
    send(20, 20);
    running.settle(20);
    assert_eq!(stats(&running)["epoch"], 1);
    running.signal("INT");
    assert!(running.end().success());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (20, 10, 0));
    web.running.signal("INT");
    assert!(web.running.end().success());
    assert!(!web.running.said().contains("panicked"), "{}", web.running.said());
}

/// A thousand connections that send nothing useful leave a page its stream and its calls.
fn flooded(web: &Web, pid: u32) {
    let mut page = web.connect();
    let body = json!({"pid": pid}).to_string();
    let head = format!(
        "POST /api/events HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\n\r\n{body}",
        web.port,
        web.token,
        body.len()
    );
    page.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(page).lines().map_while(Result::ok);
    let mut counts = |from_uptime: u64| {
        let event = lines.by_ref().take(2_000).find_map(|line| {
            let event: Value = serde_json::from_str(&line).ok()?;
            let is_late = event["uptime_ms"].as_u64().is_some_and(|uptime| uptime >= from_uptime);
            is_late.then_some(event)
        });
        event.expect("the stream is open")["uptime_ms"].as_u64().unwrap()
    };
    let before = counts(0);
    let strangers: Vec<_> = (0..1_000)
        .map(|number| {
            let mut stranger = web.connect();
            let text: &[u8] =
                if number % 2 == 0 { b"GET / HTTP/1.1\r\nHost: " } else { b"\x16\x03\x01" };
            let _closed = stranger.write_all(text);
            stranger
        })
        .collect();
    for _ in 0..5 {
        assert_eq!(web.call(pid, &json!({"request": "stats"}))["response"], "stats");
    }
    counts(before + 400);
    drop(strangers);
    // Streams are bounded.
    let streams: Vec<_> = (0..16)
        .map(|_| {
            let mut stream = web.connect();
            stream.write_all(head.as_bytes()).unwrap();
            let mut status = [0; 12];
            stream.read_exact(&mut status).unwrap();
            (stream, String::from_utf8_lossy(&status).into_owned())
        })
        .collect();
    let refused = streams.iter().filter(|(_, status)| status.ends_with("503")).count();
    assert_eq!(refused, 1, "the first has one of 16 places");
}

#[test]
fn a_page_for_reading_edits_nothing() {
    if !inside("a_page_for_reading_edits_nothing") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let mut running = capture(&path("out.pcapng"));
    let web = Web::start(&["--read-only", "--payload"]);
    let pid = running.child.id();
    for request in [json!({"request": "add", "text": "arp"}), json!({"request": "pause"})] {
        let answer = web.call(pid, &request);
        assert!(answer["message"].as_str().unwrap().contains("--read-only"), "{answer}");
    }
    send(4, 20);
    running.settle(4);
    let tried = web.call(pid, &json!({"request": "try", "text": "udp"}));
    assert_eq!((&tried["accepted"], &tried["new"]), (&json!(4), &json!(2)));
    assert!(tried["first"][0]["line"].as_str().unwrap().contains("UDP, length 20"), "{tried}");
    assert_eq!(stats(&running)["epoch"], 1);
    assert!(runtime().exists());
    running.signal("INT");
    assert!(running.end().success());
}
