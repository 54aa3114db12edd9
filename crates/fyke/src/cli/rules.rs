//! Arguments of `fyke rules`: the Bloom pre-filter.

use clap::Args;

/// `fyke rules`.
#[derive(Debug, Args)]
#[command(after_help = "\
A rule names any of ip (an address or a net), port, proto and vlan; a frame passes when one of its ends, at any level
of its encapsulation, has all of them. It may pass without (one in a million at 1,000 rules), never the other way.

Examples:
  fyke rules eth0 +ip=192.168.0.10,port=80    add a rule
  fyke rules eth0 enable 1                    only what rules name gets to the filters
  fyke rules eth0                             list rules, switches and false positives
  fyke rules eth0 -proto=tcp                  remove a rule
  fyke rules eth0 negative 1                  drop what rules name, pass everything else
  fyke rules eth0 reset                       remove all rules")]
pub struct RulesArgs {
    /// Interface that a running fyke captures on
    #[arg(value_name = "IF")]
    pub interface: String,
    /// list, +RULE, -RULE, reset, enable 0|1 or negative 0|1
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}
