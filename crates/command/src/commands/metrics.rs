//! `fyke metrics`: counts of running fykes for monitoring systems.

use super::Failure;
use super::signals::stop_on_signals;
use crate::cli::MetricsArgs;
use fyke_web::metrics::{Exporter, Others, collect, older_format};
use std::io::Write;

/// Runs the command.
pub fn run(args: &MetricsArgs) -> Result<(), Failure> {
    if args.once {
        let mut out = std::io::stdout();
        out.write_all(older_format(&collect(args.pid, &mut Others::default())).as_bytes())?;
        return Ok(out.flush()?);
    }
    let exporter = Exporter::bind(args.listen, args.pid)?;
    let stop = stop_on_signals()?;
    if !exporter.address().ip().is_loopback() {
        note!("fyke: other machines can read the counts and filter texts of your captures");
    }
    note!("fyke: metrics at http://{}/metrics; Ctrl-C ends fyke metrics", exporter.address());
    Ok(exporter.run(&stop)?)
}
