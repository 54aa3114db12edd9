//! `fyke demo`: shows the main job on generated traffic.

use super::Failure;
use super::space::Kernel;
use crate::cli::DemoArgs;
use fyke_lab::demo::{DemoError, Options, run_over};

/// Runs the command. The exit status is 1 if a packet was missed or a count does not add up.
pub fn run(args: DemoArgs) -> Result<(), Failure> {
    let defaults = Options::default();
    let options = Options {
        servers: args.servers,
        connections: args.connections,
        size_bytes: args.size.unwrap_or(defaults.size_bytes),
        seconds: args.seconds,
        background_pps: args.background_pps,
        old_way: !args.no_old_way,
        skip_edit: args.skip_edit,
        write: Some(args.write),
        json: args.json,
        from_memory: args.from_memory,
    };
    if !args.json {
        note!(
            "{} FTP servers, {} data connections each, {} background packets/s; about {} s …",
            options.servers,
            options.connections,
            options.background_pps,
            options.seconds.ceil()
        );
    }
    let outcome = run_over(options, Some(&Kernel { count_all: None }), &mut std::io::stdout())
        .map_err(|error| match error {
            DemoError::Option { .. } => Failure::Usage(error.to_string()),
            other => other.into(),
        })?;
    if outcome.is_good() { Ok(()) } else { Err(Failure::Status(1)) }
}
