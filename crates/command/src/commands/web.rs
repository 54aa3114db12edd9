//! `fyke web`: running fykes as a page in a browser.

mod looks;

use super::Failure;
use super::ctl::program;
use super::signals::stop_on_signals;
use crate::cli::WebArgs;
use anyhow::Context;
use fyke_web::fleet::Fleet;
use fyke_web::{Options, Server, StartError, Tls};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Runs the command.
pub fn run(args: &WebArgs) -> Result<(), Failure> {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let bound = Server::bind(Options {
        listen: args.listen.unwrap_or(local),
        tls: tls(args)?,
        interval: Duration::from_millis(args.interval_ms),
        program: program().replace("fyke ctl", "fyke web"),
        edits: !args.read_only,
        payload: args.payload,
        looks: Arc::new(looks::Again),
        fleet: fleet(args)?,
    });
    let server = bound.map_err(|error| match error {
        StartError::Open { .. } => {
            Failure::Usage(format!("--listen: {error} (--tls-cert FILE --tls-key FILE)"))
        }
        error => error.into(),
    })?;
    let stop = stop_on_signals()?;
    // A reader that closes its end early, such as `head -1`, does not end the server.
    let mut out = std::io::stdout();
    let _closed = writeln!(out, "{}", server.url()).and_then(|()| out.flush());
    note!("fyke: open this address in a browser; Ctrl-C ends fyke web");
    if !server.address().ip().is_loopback() {
        note!("fyke: other machines reach this page at {}, with the token", server.address());
    }
    let ended = server.run(&stop)?;
    if ended.slow > 0 {
        note!(
            "fyke: {} WebSockets were closed because their programs took nothing for 5 seconds",
            ended.slow
        );
    }
    if ended.without_handshake > 0 {
        note!(
            "fyke: {} connections did not complete the handshake of TLS",
            ended.without_handshake
        );
    }
    Ok(())
}

/// The group of machines that the page shows, if one is given.
#[cfg(feature = "fleet")]
fn fleet(args: &WebArgs) -> Result<Option<Arc<dyn Fleet>>, Failure> {
    let Some(args) = args.fleet.group() else { return Ok(None) };
    Ok(Some(Arc::new(super::fleet::page::Group::new(&args)?)))
}

#[cfg(not(feature = "fleet"))]
fn fleet(_args: &WebArgs) -> Result<Option<Arc<dyn Fleet>>, Failure> {
    Ok(None)
}

/// The certificate of the server, if one is given.
fn tls(args: &WebArgs) -> Result<Option<Tls>, Failure> {
    let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(None) };
    let read = fyke_remote::tls::pages(certificate, key, args.tls_client_ca.as_deref());
    let pages = read.context("--tls-cert, --tls-key, --tls-client-ca")?;
    Ok(Some(Tls { config: pages.config, certificate: pages.certificate, names: pages.names }))
}
