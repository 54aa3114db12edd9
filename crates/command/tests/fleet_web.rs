//! The fleet on the page of `fyke web`: the same as `fyke fleet list` and `show`, in a browser and over the WebSocket.
#![cfg(all(feature = "fleet", feature = "web"))]

mod common;
#[path = "common/group.rs"]
mod group;
#[path = "common/web.rs"]
mod served;

use common::{FYKE, Running, inside};
use fyke_testkit::browser::Browser;
use group::{Group, Two};
use serde_json::{Value, json};
use served::{Socket, Web, keep_picture};
use std::process::Command;

/// The views of a group that a program and a browser get.
struct Pages {
    socket: Socket,
    browser: Option<Browser>,
}

impl Pages {
    /// The next view of the group that fits.
    fn view(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        self.socket.next(|event| event["event"] == "fleet" && fits(event))
    }

    /// Waits until an element of the page has this text.
    fn shows(&mut self, id: &str, text: &str) {
        if let Some(browser) = &mut self.browser {
            browser.wait_for(&format!(
                "document.getElementById('{id}').textContent.includes({})",
                json!(text)
            ));
        }
    }
}

fn sensor<'a>(view: &'a Value, name: &str) -> &'a Value {
    let mut sensors = view["sensors"].as_array().unwrap().iter();
    sensors.find(|sensor| sensor["name"] == name).unwrap_or(&Value::Null)
}

fn stands(view: &Value, name: &str, standing: &str) -> bool {
    sensor(view, name)["standing"]["standing"] == standing
}

/// Every sensor and every filter as `fyke fleet` prints them.
fn is_as_printed(group: &Group, view: &Value) {
    let listed = group.sensors();
    assert_eq!(view["sensors"].as_array().unwrap().len(), listed.len(), "{view}");
    for printed in listed {
        let shown = sensor(view, printed["name"].as_str().unwrap());
        for part in ["host", "labels", "sequence", "refused"] {
            assert_eq!(shown[part], printed[part], "{part}: {shown} {printed}");
        }
        for part in ["source", "epoch"] {
            assert_eq!(shown[part], printed["fyke"][part], "{part}: {shown} {printed}");
        }
    }
    let printed = group.fleet("show", &["--json"]);
    let printed = String::from_utf8(printed.stdout).unwrap();
    let filters: Vec<Value> = printed
        .lines()
        .map(|line| {
            let mut filter: Value = serde_json::from_str(line).unwrap();
            // Left out where it is empty.
            filter["only"] = filter.get("only").cloned().unwrap_or(json!({}));
            filter
        })
        .collect();
    assert_eq!(view["filters"], json!(filters));
    assert_eq!((&view["more_filters"], &view["more_sensors"]), (&json!(0), &json!(0)));
}

/// An edit that is in force at both sensors, and one that the only sensor that it is for refuses.
fn edits_are_shown(group: &Group, pages: &mut Pages) {
    group.edited("anna", "add", &["udp port 5001"]);
    let view = pages.view(|view| {
        view["sequence"] == 1
            && ["one", "two"].iter().all(|name| sensor(view, name)["sequence"] == 1)
    });
    is_as_printed(group, &view);
    assert!(stands(&view, "one", "in_force") && stands(&view, "two", "in_force"), "{view}");
    assert_eq!(sensor(&view, "one")["standing"]["epoch"], 2);
    assert_eq!((&view["in_force"], &view["addressed"]), (&json!(2), &json!(2)));
    let since = ["one", "two"]
        .map(|name| sensor(&view, name)["standing"]["since_unix_ms"].as_u64().unwrap());
    assert_eq!(view["everywhere_since_unix_ms"].as_u64(), since.into_iter().max());
    pages.shows("fleet-line", "edit 1: in force everywhere since ");
    pages.shows("fleet-line", ", 2 sensors");
    pages.shows("fleet-sensors", "one[site=oslo]");
    pages.shows("fleet-sensors", "captures v1, local epoch 2");
    pages.shows("fleet-filters", "filter 1by annaudp port 5001");

    // As an expression of a demux, which these captures are not.
    let text = "udp => <img src=x>";
    assert!(!group.edit("bert", "add", &["--only", "site=oslo", text]).status.success());
    let view =
        pages.view(|view| stands(view, "one", "refused") && sensor(view, "one")["refused"] == 1);
    assert!(stands(&view, "two", "not_addressed"), "{view}");
    assert_eq!(view["everywhere_since_unix_ms"], Value::Null);
    assert_eq!((&view["in_force"], &view["addressed"]), (&json!(0), &json!(1)));
    assert!(sensor(&view, "one")["standing"]["message"].as_str().unwrap().contains("img"));
    pages.shows("fleet-line", "edit 2: in force at 0 of 1 sensor");
    pages.shows("fleet-sensors", "captures v1, local epoch 2, 1 edit refused");
    pages.shows("fleet-sensors", "refuses edit 2: ");
    pages.shows("fleet-filters", text);
    if let Some(browser) = &mut pages.browser {
        assert_eq!(browser.value("document.querySelectorAll('#fleet img').length"), 0);
        browser.value("document.getElementById('fleet').scrollIntoView()");
        keep_picture(browser, "fleet.png");
    }
}

/// A stopped sensor lags, then it is silent, and later it has caught up.
fn a_sensor_lags(group: &Group, pages: &mut Pages, two: &Running) {
    two.signal("STOP");
    let key = group.key("anna");
    let key = ["--key", key.to_str().unwrap(), "--wait", "0.2", "udp port 5003"];
    assert!(!group.fleet("add", &key).status.success());
    let view = pages.view(|view| stands(view, "two", "lags") && stands(view, "one", "in_force"));
    assert_eq!(sensor(&view, "two")["standing"]["edits"], 1);
    assert_eq!((&view["in_force"], &view["addressed"]), (&json!(1), &json!(2)));
    let view = pages.view(|view| stands(view, "two", "silent"));
    assert_eq!((&view["silent"], &view["addressed"]), (&json!(1), &json!(1)));
    pages.shows("fleet-line", "1 sensor; 1 sensor not heard of");
    pages.shows("fleet-sensors", "not heard of since ");
    two.signal("CONT");
    let view =
        pages.view(|view| !view["everywhere_since_unix_ms"].is_null() && view["silent"] == 0);
    assert_eq!((&view["in_force"], &view["addressed"]), (&json!(2), &json!(2)));
}

#[test]
fn the_page_shows_the_fleet() {
    if !inside("the_page_shows_the_fleet") {
        return;
    }
    let Some(mut fleet) = Two::start() else { return };
    let words = fleet.group.args();
    let web = Web::start(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let browser = Browser::start(&fleet.path("profile"));
    let mut pages = Pages { socket: web.open_with_token().unwrap(), browser };
    if let Some(browser) = &mut pages.browser {
        browser.look(1280, 900, false);
        browser.open(&web.url());
    }
    pages.socket.ask(json!({"subscribe": []}));
    let view = pages.view(|view| view["sensors"].as_array().is_some_and(|all| all.len() == 2));
    assert_eq!((&view["group"], &view["sequence"]), (&json!("edge"), &json!(0)));
    pages.shows("fleet-line", "the group has no edit yet");
    edits_are_shown(&fleet.group, &mut pages);
    a_sensor_lags(&fleet.group, &mut pages, &fleet.two);

    // The broker is away: the last state is still shown, and the rest of the page works.
    fleet.broker.kill();
    let view = pages.view(|view| !view["away"].is_null());
    assert!(view["away"]["since_unix_ms"].as_u64() >= view["everywhere_since_unix_ms"].as_u64());
    assert_eq!((&view["sequence"], &view["in_force"]), (&json!(3), &json!(2)));
    pages.shows("fleet-away", "the broker has not answered since ");
    if let Some(browser) = &mut pages.browser {
        browser.wait_for("document.getElementById('fleet').classList.contains('old')");
        browser.wait_for("document.body.dataset.state === 'runs'");
        browser.look(360, 740, true);
        browser.wait_for("document.documentElement.scrollWidth <= window.innerWidth");
        keep_picture(browser, "fleet_away.png");
    }
    let stats = pages.socket.call(fleet.first.child.id(), json!({"request": "stats"}));
    assert_eq!(stats["response"], "stats");
    fleet.broker.start_again();
    pages.view(|view| view["away"].is_null() && view["silent"] == 0 && view["in_force"] == 2);
    pages.shows("fleet-line", "edit 3: in force everywhere since ");
    drop(pages);
    web.end();
    fleet.end();
}

#[test]
fn a_group_needs_its_authors_and_options_of_a_broker_need_a_group() {
    for (words, missing) in [
        (&["web", "--group", "edge"][..], "--trust"),
        (&["web", "--trust", "authors"], "--group"),
        (&["web", "--server", "nats://127.0.0.1:1"], "--group"),
    ] {
        let output = Command::new(FYKE).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(missing), "{words:?}: {said}");
    }
}
