//! Arguments of `fyke rules`, which edits the Bloom pre-filter.

use clap::Args;

/// `fyke rules`.
#[derive(Debug, Args)]
#[command(after_help = "\
A rule names any of ip (an address or a network), port, proto and vlan. A frame matches a rule if its source or its
destination, at any level of encapsulation, has all of the named values. False positives are possible (one in a million
at 1,000 rules); false negatives are not.

Examples:
  fyke rules eth0 +ip=192.168.0.10,port=80    add a rule
  fyke rules eth0 enable 1                    pass only frames that match a rule to the filters
  fyke rules eth0                             list rules, settings and false positives
  fyke rules eth0 -proto=tcp                  remove a rule
  fyke rules eth0 negative 1                  drop frames that match a rule, pass all others
  fyke rules eth0 reset                       remove all rules")]
pub struct RulesArgs {
    /// Interface that a running fyke captures on
    #[arg(value_name = "IF")]
    pub interface: String,
    /// list, +RULE, -RULE, reset, enable 0|1 or negative 0|1
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}
