//! The graph of `fyke intercept`.

use super::super::Failure;
use super::{FILTER, INTERCEPT, cut, node, path, plain_source, yes};
use crate::cli::InterceptArgs;
use fyke_intercept::{Identities, PROTOCOLS, ports};

/// Builds the graph of `fyke intercept`.
pub fn intercept(args: &InterceptArgs) -> Result<String, Failure> {
    let live = args.source.read.is_none();
    let usage = |message: String| Failure::Usage(message);
    if args.look_back && !live {
        let message = "--look-back: a file has no capture ring to look back into; omit this option";
        return Err(usage(message.to_owned()));
    }
    if args.source.snaplen != 0 {
        return Err(usage("-s: frames of a warrant are written whole; omit this option".into()));
    }
    if args.source.workers > 1 {
        let message = "--workers: one thread follows the users; omit this option";
        return Err(usage(message.to_owned()));
    }
    let (Some(warrants), Some(folder)) = (&args.warrants, &args.write) else {
        return Err(usage("--warrants and -w are missing".to_owned()));
    };
    let given = args.identities.clone();
    let words = given.unwrap_or_else(|| match args.secret_file {
        Some(_) => PROTOCOLS.to_owned(),
        None => "dhcp,pppoe".to_owned(),
    });
    let identities = Identities::parse(&words);
    let identities = identities.map_err(|error| usage(format!("--identities: {error}")))?;
    let own_ports = args.radius_port.as_deref().map(ports).transpose();
    let own_ports = own_ports.map_err(|error| usage(format!("--radius-port: {error}")))?;
    let start = identities.start_filter(own_ports.as_deref());
    let filter = node(
        "filter",
        &[
            ("expression", Some(start)),
            ("live", yes(live)),
            ("tags", Some("skip".to_owned())),
            ("snaplen", cut(args.source.snaplen)),
            ("lookback", yes(args.look_back)),
        ],
    );
    let secrets = args.secret_file.as_deref().map(path).transpose()?.flatten();
    let intercept = node(
        "intercept",
        &[
            ("expression", Some(words)),
            ("warrants", path(warrants)?),
            ("folder", path(folder)?),
            ("secrets", secrets),
            ("port", args.radius_port.clone()),
            ("servers", args.dhcp_servers.clone()),
            ("live", yes(live)),
            ("size", args.most.map(|most| most.to_string())),
        ],
    );
    let source = plain_source(&args.source, args.look_back)?;
    Ok(format!("{source} > {{{FILTER}}}{filter} > {{{INTERCEPT}}}{intercept}"))
}
