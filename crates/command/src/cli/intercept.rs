//! Arguments of `fyke intercept`, which captures the frames of users with a warrant.

use super::{PrivilegeArgs, SourceArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `fyke intercept`.
#[derive(Debug, Args)]
#[command(
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    after_help = "\
RADIUS accounting, DHCP acknowledgements and PPPoE logins name users; the frames of a user with a valid
warrant are written to DIR/ID-N.pcapng.age, encrypted to the key of the warrant, and nothing else. The filter
follows the user: an edit of one row for each address; `fyke ctl` shows it and edits nothing. DIR/log.jsonl
records begin, end and addresses; each line has its own hash and that of the line before it.

RADIUS requests with a wrong authenticator change nothing and are counted; DHCP and PPPoE have no
authentication. Unspecified, loopback, multicast and reserved addresses and prefixes of less than 40 bits are
refused, and so are more than 64 addresses of a user. An address that is given to another user is lost.

Warrants are TOML:
  [[warrant]]
  id = \"W-17\"
  kind = \"user\"      # or mac, client-id, circuit-id, remote-id, address
  user = \"alice\"     # client-id and the next two: text, or bytes as 0x0102
  from = 2026-11-01T00:00:00Z
  until = 2026-12-01T00:00:00Z
  key = \"age1...\"    # of `fyke intercept key` or age-keygen

Secrets of RADIUS are lines ADDRESS[/LENGTH] SECRET, or * SECRET.

Examples:
  fyke intercept key court.key                    make a pair of keys, print the public one
  fyke intercept -i eth0 --warrants warrants --secret-file secrets -w out
  fyke intercept -r day.pcapng --warrants w.toml --identities dhcp,pppoe -w out
  fyke intercept verify out/log.jsonl             check the log and the files that it names
  fyke intercept decrypt --key court.key out/W-17-1.pcapng.age | fyke dump -nr -"
)]
pub struct InterceptArgs {
    /// The action, if it is not to capture.
    #[command(subcommand)]
    pub action: Option<InterceptAction>,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub privilege: PrivilegeArgs,
    /// Warrants: a file, or a folder of files *.toml
    #[arg(long, value_name = "FILE|DIR", required = true)]
    pub warrants: Option<PathBuf>,
    /// Secrets of RADIUS clients
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Protocols that name users: radius, dhcp, pppoe (default: all; radius only with --secret-file)
    #[arg(long, value_name = "NAME[,NAME]")]
    pub identities: Option<String>,
    /// Ports of RADIUS accounting (1813,1646)
    #[arg(long, value_name = "N[,N]")]
    pub radius_port: Option<String>,
    /// Believe acknowledgements of these DHCP servers only
    #[arg(long, value_name = "ADDR[,ADDR]")]
    pub dhcp_servers: Option<String>,
    /// Look back: capture also frames that arrive before the message about their user has been read. All IP then
    /// reaches this process
    #[arg(long)]
    pub look_back: bool,
    /// Folder for the encrypted files and the log; made if it does not exist
    #[arg(short, long, value_name = "DIR", required = true)]
    pub write: Option<PathBuf>,
    /// Most million bytes of frames of a warrant (100000); frames beyond count as lost
    #[arg(long, value_name = "MB",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub most: Option<u64>,
    /// Print exact counts at the end
    #[arg(long)]
    pub stats: bool,
}

/// The other actions of `fyke intercept`.
#[derive(Debug, Subcommand)]
pub enum InterceptAction {
    /// Check a log: no line was changed, removed or moved, and the files that it names are the same. Lines missing at
    /// the end are found only with --last
    Verify {
        /// The log
        file: PathBuf,
        /// Hash of the last line, as printed by an earlier check: it must still be in the log
        #[arg(long, value_name = "SHA256")]
        last: Option<String>,
    },
    /// Make a pair of keys: write the secret one to FILE, print the public one
    Key {
        /// File for the secret key; must not exist
        file: PathBuf,
    },
    /// Decrypt a file
    Decrypt {
        /// File with the secret key; refused if others can read it
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// The encrypted file (`-` = standard input)
        file: PathBuf,
        /// Write to FILE, which must not exist (`-` = standard output)
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        write: PathBuf,
    },
}
