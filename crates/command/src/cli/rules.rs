//! Arguments of `fyke rules`, which edits and owns the Bloom pre-filter of an interface.

use clap::Args;
use fyke_table::prefilter::PrefixLengths;
use std::path::PathBuf;

/// `fyke rules`.
#[derive(Debug, Args)]
#[command(after_help = "\
A rule names any of ip (an address or a network), port, proto and vlan. A frame matches a rule if its source or its
destination, at any level of encapsulation, has all of the named values. False positives are possible (one in a million
at 1,000 rules); false negatives are not. Enabled rules reject frames that match none of them; without a rule, every
frame passes.

Without --own, --tcx or --drop, the command goes to the fyke that has the rules of the interface, or else to the only
capture there. With one of them, this fyke has the rules until it ends (root only), also when the interface is renamed;
then every frame passes. They also take lines from the pipes rules, enable and reset in a folder, which is printed;
refused lines go to rules.error. The expected rate of false positives is printed at the start for the sizes of the
arrays, and by list for the rules.

Examples:
  fyke rules eth0 +ip=192.168.0.10,port=80    add a rule
  fyke rules eth0 enable 1                    pass only frames that match a rule to the filters
  fyke rules eth0                             list rules, settings and false positives
  fyke rules eth0 -proto=tcp                  remove a rule
  fyke rules eth0 negative 1                  drop frames that match a rule, pass all others
  fyke rules eth0 reset                       remove all rules
  fyke rules eth0 -F rules.txt                one command per line, all of them or none
  fyke rules eth0 --own --bits 16000000 --hash-pairs 2 --prefixes ip/32,ip/24     sizes for 100,000 rules
  fyke rules eth0 --own                       have the rules; captures read them with `fyke dump --rules`
  fyke rules eth0 --tcx --copy-to mon0        copy frames of both directions that match to mon0, for any program
  fyke rules mon0 --drop -F rules.txt         drop what the rules reject before the host gets it

docs/rules.md tells more.")]
pub struct RulesArgs {
    /// Interface that a running fyke captures on, or that this one is to have the rules of
    #[arg(value_name = "IF")]
    pub interface: String,
    /// Commands from a file, one per line, all of them or none; `-` is standard input
    #[arg(short = 'F', value_name = "FILE", allow_hyphen_values = true)]
    pub file: Option<PathBuf>,
    /// Have the rules of the interface until the end, for captures with --rules
    #[arg(long, conflicts_with_all = ["drop", "tcx"])]
    pub own: bool,
    /// Have the rules and count the frames of both directions by them (tcx, Linux 6.6); the host gets every frame
    #[arg(long, conflicts_with = "drop")]
    pub tcx: bool,
    /// With --tcx: copy the frames that pass the rules to this interface
    #[arg(long, value_name = "IF", requires = "tcx")]
    pub copy_to: Option<String>,
    /// Have the rules and drop what they reject at XDP: the host does not get these frames either
    #[arg(long)]
    pub drop: bool,
    /// With --drop: even if the host uses the interface (an address, a route, a port of a bridge)
    #[arg(long, requires = "drop")]
    pub take: bool,
    /// Bits of each array, from 64 to 536870912, all arrays together at most 64 MiB [default: 2097152]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(64..=1 << 29))]
    pub bits: Option<u64>,
    /// Pairs of hash functions of each array, 1 or 2; a second pair lets fewer frames pass by mistake, unless an array
    /// has many rules for its bits [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub hash_pairs: Option<u8>,
    /// Prefix lengths that rules may have, such as ip/32,ip/24,ip6/64; each has an array, and rules without an address
    /// have one more [default: any]
    #[arg(long, value_name = "LIST")]
    pub prefixes: Option<PrefixLengths>,
    /// Most arrays; rules of each prefix length, and rules without an address, have one [default: 16, or as
    /// many as --prefixes needs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=32))]
    pub arrays: Option<u8>,
    /// list, +RULE, -RULE, reset, enable 0|1 or negative 0|1
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}
