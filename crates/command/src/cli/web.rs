//! Arguments of `fyke web`, which shows running fykes in a browser.

use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `fyke web`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without a certificate, the page is served on this machine only. The address that is printed contains a secret:
everybody with the address can edit your captures until fyke web ends. For a capture on another machine, forward the
port, or serve over TLS, with a certificate that has the name or the address of this machine:

  ssh -L 8888:127.0.0.1:8888 host fyke web --port 8888
  fyke web --listen 0.0.0.0:8888 --tls-cert host.pem --tls-key host.key

Keys on the page: / types a filter, u takes back your last edit, r shows rejected frames, l shows the log of edits.

With --group, the page also shows the filters of a group of machines and where they are in force; it does not edit
them.

Examples:
  fyke web
  fyke web --port 8888 --read-only
  fyke web --group edge --trust authors --server nats://10.0.0.9:4222")]
pub struct WebArgs {
    /// Port on 127.0.0.1 (any that is free)
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Address and port to listen at, instead of 127.0.0.1; an address that other machines reach needs --tls-cert
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "port")]
    pub listen: Option<SocketAddr>,
    /// Serve over TLS with this certificate, with those between it and its authority (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Only browsers and programs with a certificate of these authorities (PEM); they need the token, too
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
    /// Milliseconds between two readings of the counts
    #[arg(
        long,
        default_value_t = 200,
        value_parser = clap::value_parser!(u64).range(100..=60_000)
    )]
    pub interval_ms: u64,
    /// Refuse edits and pauses
    #[arg(long)]
    pub read_only: bool,
    /// Show whole lines of frames; without it, the addresses only, up to the first `: ` of a line
    #[arg(long)]
    pub payload: bool,
    /// The group of machines that is shown
    #[cfg(feature = "fleet")]
    #[command(flatten)]
    pub fleet: super::PageGroupArgs,
}
