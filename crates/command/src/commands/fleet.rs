//! `fyke sensor`, `fyke worker` and `fyke fleet`: filters and archives of many machines through a message system.

mod alerts;
pub mod archive;
#[cfg(feature = "web")]
pub mod page;
mod refusals;
mod rows;
mod ship;
mod show;
mod take;
mod texts;

use super::Failure;
use super::signals::stop_on_signals;
use crate::cli::{FleetAction, FleetArgs, FleetEditArgs, FleetReadArgs, GroupArgs, SensorArgs};
use anyhow::{Context, anyhow};
use fyke_fleet::broker::{self, Broker, BrokerError};
use fyke_fleet::edit::{Change, Labels};
use fyke_fleet::keys::{Author, Trusted};
use fyke_fleet::local::{Beside, Controlled};
use fyke_fleet::message::{Outcome, Tried};
use fyke_fleet::operator::{Operator, OperatorError, Report, check_author};
use fyke_fleet::sensor::{self, Sensor};
use fyke_fleet::{Name, stopped, unless_stopped};
use std::fs::File;
use std::future::Future;
use std::io::{Read, Write};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Times that `add` is repeated after edits of others.
const REPEATED: usize = 20;
/// Most bytes of a password.
const MAX_PASSWORD: u64 = 4_096;

/// Runs `fyke sensor`.
pub fn sensor(args: &SensorArgs) -> Result<(), Failure> {
    let name = match &args.name {
        Some(name) => named("--name", name)?,
        None => {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            // A name of a machine may have dots, a name of a sensor not.
            Name::new(&host.replace('.', "-")).map_err(|why| {
                Failure::Usage(format!(
                    "give the sensor a name with --name; that of the machine: {why}"
                ))
            })?
        }
    };
    let (group, to) = (named("--group", &args.group.group)?, options_of(&args.group)?);
    let options = sensor::Options {
        name: name.clone(),
        labels: args.labels.iter().cloned().collect(),
        trusted: trusted(&args.group)?,
    };
    let beside = match (&args.beside, args.pid) {
        (Some(source), _) => Beside::Source(source.clone()),
        (None, Some(pid)) => Beside::Process(pid),
        (None, None) => Beside::Only,
    };
    let local = Controlled::new(beside, &group);
    let stop = stop_on_signals()?;
    wait_for(async {
        let client = format!("fyke sensor {name}");
        let broker = connected(&stop, Broker::connect(&to, group.clone(), &client)).await?;
        note!("fyke: sensor {name} of the group {group} at {}; Ctrl-C ends fyke sensor", to.server);
        let sensor = Sensor::new(options, broker, local, |line| note!("fyke: {line}"));
        Ok(sensor.run(stopped(&stop)).await?)
    })
}

/// Runs `fyke fleet`.
pub fn run(args: FleetArgs) -> Result<(), Failure> {
    let mut out = super::output();
    match args.action {
        FleetAction::Key { file, name } => {
            let author = Author::create(&file, named("--name", &name)?)?;
            writeln!(out, "{}", author.public_line())?;
            let file = file.display();
            note!(
                "fyke: the private key is in {file}; the line above is for the file of trusted authors"
            );
        }
        FleetAction::List(args) => {
            let sensors = read(&args, async |operator| Ok(operator.sensors().await?))?;
            show::sensors(&mut out, &sensors, args.json)?;
        }
        FleetAction::Show(args) => {
            let state = read(&args, async |operator| Ok(operator.state().clone()))?;
            show::filters(&mut out, &state, args.json)?;
        }
        FleetAction::Log { read: args, last } => {
            let log = with(&args.group, All::Edits, async |operator| Ok(operator.log().to_vec()))?;
            show::log(&mut out, &log[log.len().saturating_sub(last)..], args.json)?;
        }
        FleetAction::Try { read: args, only, last, expression } => {
            let (text, only) = (expression.join(" "), only.into_iter().collect());
            texts::check(&text)?;
            let told =
                read(&args, async |operator| Ok(operator.try_filter(&text, last, &only).await?))?;
            show::tried(&mut out, &told, args.json)?;
            out.flush()?;
            all_tried(&told)?;
        }
        FleetAction::Scan(args) => archive::scan(&args)?,
        FleetAction::Ship(args) => ship::run(&args)?,
        FleetAction::Take(args) => take::run(&args)?,
        FleetAction::Sums(args) => take::sums(&args)?,
        FleetAction::Watch(args) => watch(&args)?,
        FleetAction::Set { edit, expression } => {
            let text = expression.join(" ");
            let mut changes = vec![Change::Clear];
            if !text.trim().is_empty() {
                texts::check(&text)?;
                changes.push(Change::Add { text });
            }
            change(&edit, 1, All::OfNew, |_, _| Ok((only(&edit), changes.clone(), None)))?;
        }
        FleetAction::Add { edit, expression } => {
            let text = expression.join(" ");
            texts::check(&text)?;
            let changes = vec![Change::Add { text }];
            change(&edit, REPEATED, All::OfNew, |_, _| Ok((only(&edit), changes.clone(), None)))?;
        }
        FleetAction::Del { edit, ids } => {
            let ids: Result<Vec<_>, _> = ids.iter().map(|id| id.parse()).collect();
            let ids = ids.map_err(Failure::Usage)?;
            let changes: Vec<_> = ids.into_iter().map(|id| Change::Delete { id }).collect();
            change(&edit, 1, All::Filters, |_, _| Ok((only(&edit), changes.clone(), None)))?;
        }
        FleetAction::Undo { edit, sequence } => {
            change(&edit, 1, All::Edits, |operator, author| {
                let (undone, only, changes) = operator.undo(author, sequence)?;
                Ok((only, changes, Some(undone)))
            })?;
        }
    }
    Ok(out.flush()?)
}

/// Fails if a sensor has not tried a filter: with status 2 if its fyke refuses the text, as `fyke ctl try` does.
fn all_tried(told: &[Tried]) -> Result<(), Failure> {
    let all = told.len();
    let failed = told.iter().filter(|one| one.failed.is_some()).count();
    let refused = told.iter().filter(|one| one.is_refused).count();
    match (refused, failed) {
        _ if all == 0 => Err(Failure::Running(anyhow!("no sensor runs that could try the filter"))),
        (0, 0) => Ok(()),
        (0, _) => {
            Err(Failure::Running(anyhow!("{failed} of {all} sensors have not tried the filter")))
        }
        _ => Err(Failure::Usage(format!("{refused} of {all} sensors refuse the filter"))),
    }
}

/// Labels, changes, and the edit that they take back.
type Wanted = (Labels, Vec<Change>, Option<u64>);

/// Makes an edit, and prints where it is in force; repeats it at most `attempts` times after edits of others.
fn change(
    args: &FleetEditArgs,
    attempts: usize,
    all: All,
    wanted: impl Fn(&Operator, &Author) -> Result<Wanted, OperatorError>,
) -> Result<(), Failure> {
    let author = Author::read(&args.key)?;
    // Before the group is made.
    check_author(&trusted(&args.group)?, &author)?;
    let (report, clears): (Report, bool) = with(&args.group, all, async |operator| {
        let mut left = attempts;
        loop {
            let (only, changes, undoes) = wanted(operator, &author)?;
            let clears = only.is_empty() && changes.contains(&Change::Clear);
            left -= 1;
            match operator.edit(&author, &only, changes, undoes, args.wait).await {
                Err(OperatorError::Conflict { .. }) if left > 0 => operator.read().await?,
                outcome => return Ok((outcome?, clears)),
            };
        }
    })?;
    let mut out = super::output();
    show::report(&mut out, &report, args.json)?;
    out.flush()?;
    match report.everywhere() {
        Some(_) => Ok(()),
        None => Err(Failure::Running(anyhow!(not_everywhere(&report, clears)))),
    }
}

/// Tells of an edit that is not in force at some sensors, and the next step; `clears`: it cannot be taken back.
fn not_everywhere(report: &Report, clears: bool) -> String {
    let (sequence, count) = (report.sequence, report.sensors.len());
    let lacking = count - report.in_force();
    let is_void = |told: &&Option<(Outcome, Duration)>| {
        matches!(told, Some((Outcome::Refused { is_void: true, .. }, _)))
    };
    let void = report.sensors.values().filter(is_void).count();
    let what = format!("edit {sequence} is not in force at {lacking} of {count} sensors");
    if void == lacking {
        return format!(
            "{what}, and it has no effect there that `fyke fleet undo` could take back; remove the reason that they \
             give, and make the edit again"
        );
    }
    let next = match clears {
        true => "another `fyke fleet set` replaces it".to_owned(),
        false => format!("`fyke fleet undo {sequence}` takes it back"),
    };
    format!("{what} (it stays in the group; {next})")
}

/// Prints what happens until a signal.
fn watch(args: &FleetReadArgs) -> Result<(), Failure> {
    let stop = stop_on_signals()?;
    with(&args.group, All::Filters, async |operator| {
        let mut answers = operator.answers().await?;
        let mut stop = std::pin::pin!(stopped(&stop));
        let mut look = tokio::time::interval(Duration::from_secs(1));
        let mut known = operator.log().len();
        loop {
            let answer = tokio::select! {
                () = &mut stop => return Ok(()),
                _ = look.tick() => None,
                Some(answer) = fyke_fleet::operator::next(&mut answers) => Some(answer),
            };
            operator.read().await?;
            let mut out = super::output();
            show::log(&mut out, &operator.log()[known..], args.json)?;
            known = operator.log().len();
            if let Some(answer) = answer {
                show::answers(&mut out, &answer, args.json)?;
            }
            out.flush()?;
        }
    })
}

fn only(args: &FleetEditArgs) -> Labels {
    args.only.iter().cloned().collect()
}

fn read<T>(
    args: &FleetReadArgs,
    what: impl AsyncFnOnce(&mut Operator) -> anyhow::Result<T>,
) -> Result<T, Failure> {
    with(&args.group, All::Filters, what)
}

/// Parts of a group that are read: its filters, from the last snapshot on, or every edit that it ever had.
#[derive(Clone, Copy)]
enum All {
    Filters,
    /// The filters of a group that is made if it is not there.
    OfNew,
    Edits,
}

/// Connects, reads the group, and does something with it.
fn with<T>(
    args: &GroupArgs,
    all: All,
    what: impl AsyncFnOnce(&mut Operator) -> anyhow::Result<T>,
) -> Result<T, Failure> {
    let (group, trusted, to) = (named("--group", &args.group)?, trusted(args)?, options_of(args)?);
    wait_for(async {
        let broker = match all {
            All::OfNew => Broker::connect(&to, group, "fyke fleet").await?,
            All::Filters | All::Edits => Broker::open(&to, group, "fyke fleet").await?,
        };
        let mut operator = match all {
            All::Edits => Operator::new(broker, trusted).await?,
            All::Filters | All::OfNew => Operator::from_snapshot(broker, trusted).await?,
        };
        what(&mut operator).await
    })
}

/// Runs one thread of tasks to its end.
fn wait_for<T>(what: impl Future<Output = anyhow::Result<T>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(what).map_err(Failure::Running)
}

/// Connects, unless a signal ends the command first.
async fn connected<T>(
    stop: &AtomicBool,
    connecting: impl Future<Output = Result<T, BrokerError>>,
) -> anyhow::Result<T> {
    let connected = unless_stopped(stop, connecting).await;
    Ok(connected.ok_or_else(|| anyhow!("ended before the broker has answered"))??)
}

fn named(option: &str, name: &str) -> Result<Name, Failure> {
    Name::new(name).map_err(|why| Failure::Usage(format!("{option}: {why}")))
}

fn trusted(args: &GroupArgs) -> Result<Trusted, Failure> {
    let Some(file) = &args.trust else {
        return Err(Failure::Usage(
            "--trust FILE is missing: the trusted authors of edits (`fyke fleet key` prints their lines)"
                .to_owned(),
        ));
    };
    Ok(Trusted::read(file)?)
}

fn options_of(args: &GroupArgs) -> Result<broker::Options, Failure> {
    let password = args.password_file.as_ref().map(|file| {
        let shown = file.display();
        let mut password = String::new();
        let opened = File::open(file).with_context(|| format!("{shown}"))?;
        opened.take(MAX_PASSWORD).read_to_string(&mut password)?;
        anyhow::Ok(password.trim_end_matches(['\r', '\n']).to_owned())
    });
    let user = match (&args.user, password.transpose()?) {
        (Some(user), Some(password)) => Some((user.clone(), password)),
        _ => None,
    };
    Ok(broker::Options {
        server: args.server.clone(),
        user,
        ca: args.tls_ca.clone(),
        certificate: args.tls_cert.clone().zip(args.tls_key.clone()),
        replicas: args.replicas.into(),
    })
}
