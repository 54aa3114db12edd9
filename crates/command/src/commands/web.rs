//! `fyke web`: running fykes as a page in a browser.

mod looks;

use super::Failure;
use super::ctl::program;
use super::signals::stop_on_signals;
use crate::cli::WebArgs;
use fyke_web::{Options, Server};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// Runs the command.
pub fn run(args: &WebArgs) -> Result<(), Failure> {
    let server = Server::bind(Options {
        port: args.port,
        interval: Duration::from_millis(args.interval_ms),
        program: program().replace("fyke ctl", "fyke web"),
        edits: !args.read_only,
        payload: args.payload,
        looks: Arc::new(looks::Again),
    })?;
    let stop = stop_on_signals()?;
    // A reader that closes its end early, such as `head -1`, does not end the server.
    let mut out = std::io::stdout();
    let _closed = writeln!(out, "{}", server.url()).and_then(|()| out.flush());
    note!("fyke: open this address in a browser; Ctrl-C ends fyke web");
    let slow = server.run(&stop)?;
    if slow > 0 {
        note!(
            "fyke: {slow} WebSockets were closed because their programs took nothing for 5 seconds"
        );
    }
    Ok(())
}
