//! Arguments of `fyke extcap`, by which Wireshark and its programs have the captures of fyke as interfaces.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// `fyke extcap`.
#[derive(Debug, Args)]
#[command(after_help = "\
After `fyke extcap --install`, Wireshark, tshark and dumpcap list the interfaces of fyke next to their own: fyke:eth0,
fyke:any, fyke:serve:NAME for each `fyke serve`, and fyke:/relay for a capture on another machine. Their capture
filter is fyke's, in place, without a restart:

  Filter    press Enter: it is in force; if it is refused, the message has the place, and the old filter stays. It
            follows undo, Remove and the edits of others
  Text      the expression for Add, Try and Explain
  In force  the filters; Remove removes the selected one, Undo takes your last edit back
  status    the epoch, and the sum of all frames

On a terminal, `fyke ctl` edits the same capture. With the Debian package, members of the group fyke capture in
Wireshark without root once `fyke-capabilities on` was run. Wireshark calls the other options itself.

Examples:
  sudo fyke extcap --install                             for all users of this machine
  fyke extcap --install                                  for your user; Wireshark before 4.2 reads no folder of users
  tshark -G folders                                      the folders that your version of Wireshark reads
  tshark -i fyke:eth0 -f 'tcp port 443' -w out.pcapng
  tshark -i fyke:eth0 -o extcap.fyke_eth0.annotate:true -w out.pcapng   options; tshark -G currentprefs lists them
  fyke extcap --uninstall")]
pub struct ExtcapArgs {
    /// Link this program into FOLDER (by default one that the installed tshark reads: as root that of the system, else
    /// that of your user)
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, conflicts_with = "uninstall")]
    pub install: Option<Option<PathBuf>>,
    /// Remove the link from FOLDER
    #[arg(long, value_name = "FOLDER", num_args = 0..=1)]
    pub uninstall: Option<Option<PathBuf>>,
    /// Options of Wireshark's interface for external captures: --extcap-interfaces, --capture and others
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub words: Vec<OsString>,
}
