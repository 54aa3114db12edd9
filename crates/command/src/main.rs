//! The command `fyke`.
#![forbid(unsafe_code)]

/// Prints a message on standard error: lines with control characters escaped, or with `--log json` an object. Write
/// errors are ignored: a closed or full standard error does not end the command.
macro_rules! note {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let text = format!($($text)*);
        let _ = writeln!(std::io::stderr(), "{}", crate::commands::note_line(&text));
    }};
}

mod cli;
mod commands;

use clap::Parser;
use cli::{Cli, Command};
use commands::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Before the arguments are looked at: every command reads or writes files.
    if fyke_privilege::user::is_setuid() {
        note!(
            "fyke: fyke must not be installed setuid or setgid: any user could read and write \
             files as its owner or group with it (to capture, `setcap cap_net_raw+ep` is enough)"
        );
        return ExitCode::from(1);
    }
    // A command that cannot keep them ends at once at a signal, as before.
    let _at_once = fyke_privilege::early::keep();
    let result = match commands::tcpdump::is_called() {
        true => commands::tcpdump::run(),
        false if commands::extcap::is_called() => commands::extcap::answer(),
        false => match Cli::try_parse() {
            Ok(cli) => {
                commands::write_notes_as(cli.log);
                run(cli.command)
            }
            // Help and version texts are our own; an error repeats the arguments, so `note!` escapes it.
            Err(error) if !error.use_stderr() => error.exit(),
            Err(error) => {
                let words: Vec<_> = std::env::args_os().skip(1).collect();
                let words: Vec<_> =
                    words.iter().map(|word| word.to_string_lossy().into()).collect();
                note!("{}", cli::explained(&error, &words));
                return ExitCode::from(2);
            }
        },
    };
    commands::give_back_rules();
    if let Some(helper) = fyke_privilege::helper::current().filter(|helper| !helper.end()) {
        note!("fyke: the helper process {} does not end (`kill -KILL` as root)", helper.pid());
    }
    if let Some(loader) = fyke_kernel::loader::current().filter(|loader| !loader.end()) {
        note!("fyke: the process {} does not end (`kill -KILL` as root)", loader.pid());
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Pipe) => ExitCode::SUCCESS,
        Err(Failure::Status(status)) => ExitCode::from(status),
        Err(Failure::Usage(message)) => {
            note!("fyke: {message}");
            ExitCode::from(2)
        }
        Err(failure @ Failure::Running(_)) => {
            note!("fyke: {}", failure.message());
            ExitCode::from(1)
        }
    }
}

/// True for commands that end in order at a signal, with counts or with what they have opened removed.
fn ends_in_order(command: &Command) -> bool {
    use Command::{
        Account, Demux, Dump, Extcap, Ids, Intercept, Relay, Resume, Rules, Run, Serve, Track,
    };
    matches!(
        command,
        Account(_)
            | Demux(_)
            | Dump(_)
            | Extcap(_)
            | Ids(_)
            | Intercept(_)
            | Relay(_)
            | Resume(_)
            | Rules(_)
            | Run(_)
            | Serve(_)
            | Track(_)
    )
}

fn run(command: Command) -> Result<(), Failure> {
    if !ends_in_order(&command) {
        fyke_privilege::early::give_back();
    }
    match command {
        Command::Dump(args) => commands::dump::run(*args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Run(args) => commands::run::run(args),
        Command::Resume(args) => commands::resume::run(&args),
        Command::Ctl(args) => commands::ctl::run(args),
        #[cfg(feature = "top")]
        Command::Top(args) => commands::top::run(&args),
        #[cfg(feature = "web")]
        Command::Web(args) => commands::web::run(&args),
        #[cfg(feature = "web")]
        Command::Metrics(args) => commands::metrics::run(&args),
        Command::Mcp(args) => commands::mcp::run(&args),
        Command::Ids(args) => commands::ids::run(*args),
        Command::Snort2ruler(args) => commands::snort2ruler::run(args),
        Command::Exec(args) => commands::exec::run(args),
        Command::Extcap(args) => commands::extcap::run(&args),
        Command::Serve(args) => commands::serve::run(args),
        Command::Relay(args) => commands::relay::run(&args),
        #[cfg(feature = "fleet")]
        Command::Sensor(args) => commands::fleet::sensor(&args),
        #[cfg(feature = "fleet")]
        Command::Worker(args) => commands::fleet::archive::worker(&args),
        #[cfg(feature = "fleet")]
        Command::Fleet(args) => commands::fleet::run(args),
        Command::Lend(_) => Err(Failure::Usage(
            "there is no `fyke lend` any more: `fyke serve -i IF` serves the capture of an interface to many \
             programs, without a packet socket in their hands (docs/serve.md); the library still shares a filter \
             in the kernel with a program of root (fyke_kernel::share)"
                .to_owned(),
        )),
        Command::Rules(args) => commands::rules::run(args),
        Command::Completions(args) => commands::written::completions(&args),
        Command::Man(args) => commands::written::man(&args),
        Command::Track(args) => commands::track::run(args),
        Command::Intercept(args) => commands::intercept::run(*args),
        Command::Demux(args) => commands::demux::run(args),
        Command::Account(args) => commands::account::run(*args),
        Command::Machine(args) => commands::machine::run(args),
        Command::Ruler(args) => commands::ruler::run(args),
        #[cfg(feature = "lab")]
        Command::Demo(args) => commands::demo::run(args),
        #[cfg(feature = "lab")]
        Command::Bench(args) => commands::bench::run(args),
        #[cfg(feature = "lab")]
        Command::Generate(args) => commands::generate::run(args),
    }
}
