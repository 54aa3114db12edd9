//! `fyke top`: a running fyke on a terminal: counts and rates of filters and nodes, and edits from the keyboard.
//!
//! A thread reads the counts; the thread that draws also sends the actions and waits for their answers. The running
//! fyke serves both like any other client, so it delays no capture. Each action has a connection of its own: a fyke
//! closes those that are idle, and after a late answer the next one would be that of another action.

mod model;
mod picture;
mod view;

use super::ctl::{connect, past, program, refused};
use super::signals::stop_on_signals;
use super::{Failure, ctl};
use crate::cli::TopArgs;
use anyhow::Context;
use fyke_control::{CallError, Client, Request, Response, Stats};
use model::{Action, Key, Model};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Longest wait for a key before new counts are drawn.
const PATIENCE: Duration = Duration::from_millis(50);
/// Longest wait for the answer to an action.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Shortest time without counts that is shown.
const LATE: Duration = Duration::from_secs(3);
/// Longest wait for the passes of a filter.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// Runs the command.
pub fn run(args: &TopArgs) -> Result<(), Failure> {
    if let Some(path) = &args.svg {
        return draw(args, path);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::Running(anyhow::anyhow!(
            "fyke top needs a terminal; `fyke ctl watch` prints the counts"
        )));
    }
    let watcher = connect(args.pid)?;
    let target = watcher.target().map(|target| (target.pid, target.to_string()));
    let (pid, title) = target.map_or((args.pid, String::new()), |(pid, text)| (Some(pid), text));
    let watch = watcher.watch(args.interval_ms)?;
    let (sender, counts) = channel();
    std::thread::Builder::new().name("counts".to_owned()).spawn(move || {
        for stats in watch {
            // The receiver is gone at the end.
            if sender.send(stats).is_err() {
                break;
            }
        }
    })?;
    let stop = stop_on_signals()?;
    // After a hang-up, the wait for a key never ends, and there is no terminal to restore.
    std::thread::Builder::new().name("terminal".to_owned()).spawn(|| {
        while std::io::stdin().is_terminal() {
            std::thread::sleep(PATIENCE);
        }
        std::process::exit(1);
    })?;
    let mut model = Model::new(title.trim().to_owned());
    let mut terminal = ratatui::try_init()?;
    let late = LATE.max(Duration::from_millis(args.interval_ms.saturating_mul(3)));
    let result = show(&mut terminal, &mut model, Counts { from: &counts, late }, pid, &stop);
    ratatui::restore();
    result
}

/// Draws the screen into a file after some readings.
fn draw(args: &TopArgs, path: &Path) -> Result<(), Failure> {
    let watcher = connect(args.pid)?;
    let title = watcher.target().map_or_else(String::new, ToString::to_string);
    let mut model = Model::new(title.trim().to_owned());
    for stats in watcher.watch(args.interval_ms)?.take(usize::from(args.readings).max(1)) {
        model.update(stats?);
    }
    let (columns, lines) = args.size;
    let drawn = picture::svg(&model, columns, lines);
    let written =
        drawn.and_then(|text| fyke_privilege::place::create(path)?.write_all(text.as_bytes()));
    Ok(written.with_context(|| format!("cannot write {}", path.display()))?)
}

/// The counts as they arrive, and the time after which they are late.
#[derive(Clone, Copy)]
struct Counts<'a> {
    from: &'a Receiver<Result<Stats, CallError>>,
    late: Duration,
}

/// Draws until the user quits.
fn show(
    terminal: &mut DefaultTerminal,
    model: &mut Model,
    counts: Counts<'_>,
    pid: Option<u32>,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let mut last = Instant::now();
    // The screen is drawn when it changes: thousands of filters take long.
    let mut is_new = true;
    while !stop.load(Ordering::Relaxed) {
        loop {
            match counts.from.try_recv() {
                Ok(Ok(stats)) => {
                    (last, is_new) = (Instant::now(), true);
                    model.update(stats);
                    look_at_passes(model, pid);
                }
                Ok(Err(error)) => (model.ended, is_new) = (Some(error.to_string()), true),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    is_new |= model.ended.is_none();
                    model.ended.get_or_insert_with(|| "it has ended; q quits".to_owned());
                    break;
                }
            }
        }
        let silent = last.elapsed();
        let silent_s = (silent >= counts.late).then_some(silent.as_secs());
        is_new |= std::mem::replace(&mut model.silent_s, silent_s) != silent_s;
        if std::mem::take(&mut is_new) {
            terminal.draw(|frame| view::draw(frame, model))?;
        }
        if !event::poll(PATIENCE)? {
            continue;
        }
        // A key, or another size of the window.
        is_new = true;
        let Some(key) = key(&event::read()?) else { continue };
        match model.key(key) {
            Some(Action::Quit) => return Ok(()),
            Some(action) => {
                let answer = act(pid, &action);
                model.answered(action, answer);
                look_at_passes(model, pid);
            }
            None => look_at_passes(model, pid),
        }
    }
    Ok(())
}

/// The key of an event, if this program uses it.
fn key(event: &Event) -> Option<Key> {
    let Event::Key(key) = event else { return None };
    if key.kind != KeyEventKind::Press {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if control => Key::Interrupt,
        KeyCode::Char(_) if control => return None,
        KeyCode::Char(letter) => Key::Letter(letter),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Delete => Key::Delete,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        _ => return None,
    })
}

/// Reads the passes of the selected filter, if they are shown.
fn look_at_passes(model: &mut Model, pid: Option<u32>) {
    let Some(id) = model.shown_filter() else {
        model.passes = None;
        return;
    };
    if let Ok(Response::Passes { filters, .. }) = ask(pid, Request::Show, LOOK_LIMIT) {
        model.passes = filters.into_iter().find(|filter| filter.id == id);
    }
}

/// Makes a request by a connection of its own.
fn ask(pid: Option<u32>, request: Request, limit: Duration) -> Result<Response, String> {
    let mut client = Client::connect(pid).map_err(|error| error.to_string())?;
    client.set_answer_limit(limit);
    if !request.only_reads() {
        let named = client.hello(&program().replace("fyke ctl", "fyke top"));
        named.map_err(|error| refused(error).message())?;
    }
    client.call(request).map_err(|error| refused(error).message())
}

/// Carries an action out; returns its result as text, or the reason of a refusal.
fn act(pid: Option<u32>, action: &Action) -> Result<String, String> {
    let request = match action {
        Action::Add(text) => Request::Add { text: text.clone() },
        Action::Try(text) => Request::Try { text: text.clone(), last: None },
        Action::Delete(id) => Request::Delete { id: *id },
        Action::Undo => Request::Undo { epoch: None },
        Action::Pause(true) => Request::Pause,
        Action::Pause(false) => Request::Start,
        Action::Quit => return Ok(String::new()),
    };
    Ok(match ask(pid, request, ANSWER_LIMIT)? {
        Response::Tried(tried) => {
            let mut text = Vec::new();
            // A vector takes every byte.
            let _infallible = past::tried(&mut text, &tried);
            String::from_utf8_lossy(&text).into_owned()
        }
        Response::Ok { epoch, ids, notes, .. } => {
            let mut text = format!("{}epoch {epoch}", ctl::ids(&ids));
            notes.iter().for_each(|note| text += &format!("\n{note}"));
            text
        }
        _ => "an answer that this version does not know".to_owned(),
    })
}
