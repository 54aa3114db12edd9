//! Arguments of `fyke relay`, and of sources on other machines.

use super::PrivilegeArgs;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `fyke relay`.
#[derive(Debug, Args)]
#[command(after_help = "\
The relay is a reader of `fyke serve` (or of a ring) on this machine, for clients on others: only frames that the
filter of a client accepts cross the network, and the client edits its filter while it runs. Both ends need
certificates; the common name in a client's certificate is its name, for the rules of --config (docs/remote.md).

Examples:
  fyke serve -i eth0 &
  fyke relay -i serve:eth0 --listen 0.0.0.0:4747 --tls-cert a.pem --tls-key a.key --tls-clients ca.pem
  fyke dump -i serve:a.net:4747 --tls-ca ca.pem --tls-cert b.pem --tls-key b.key udp")]
pub struct RelayArgs {
    /// Source for clients: serve:NAME or ring:PATH; several -i: clients choose by the name (of a ring: its file)
    #[arg(short, long, value_name = "SOURCE", required = true, action = clap::ArgAction::Append)]
    pub interface: Vec<String>,
    /// Address and port to listen at
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: SocketAddr,
    /// Our certificate, with those between it and its authority (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_cert: PathBuf,
    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_key: PathBuf,
    /// The authorities of the certificates of clients (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_clients: PathBuf,
    /// Policy of `fyke serve`: its rules with `names` decide what clients see; without it, each client with a
    /// certificate sees every frame. Read again for each client
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Read services and rings of USER too; without it, those of root and of your own user
    #[arg(long, value_name = "USER")]
    pub ring_user: Option<String>,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
}

/// Certificates for a source on another machine.
#[derive(Debug, Clone, Default, Args)]
pub struct TlsArgs {
    /// With -i serve:HOST:PORT or ring:HOST:PORT: the authority of the relay's certificate (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_cert", "tls_key"])]
    pub tls_ca: Option<PathBuf>,
    /// With -i serve:HOST:PORT or ring:HOST:PORT: our certificate (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub tls_cert: Option<PathBuf>,
    /// With -i serve:HOST:PORT or ring:HOST:PORT: the private key of our certificate (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_cert"])]
    pub tls_key: Option<PathBuf>,
    /// End when the connection to a relay is lost; by default it is made again, 0.1 s to 5 s after each attempt
    #[arg(long, requires = "tls_ca")]
    pub no_reconnect: bool,
}
