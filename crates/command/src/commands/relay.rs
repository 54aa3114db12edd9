//! `fyke relay`: the frames of a service or a ring for clients on other machines.

use super::Failure;
use super::privilege::{Doors, Needs, Privileges};
use super::remote::parted;
use super::signals::stop_on_signals;
use crate::cli::RelayArgs;
use anyhow::Context;
use fyke_remote::relay::Options;
use fyke_remote::source::FarKind;
use fyke_remote::{Files, Offer, Relay};
use std::path::PathBuf;

fn offer(name: &str) -> Result<Offer, Failure> {
    let usage = |why: String| Failure::Usage(format!("-i {name}: {why}"));
    match parted(name) {
        Some((FarKind::Service, rest)) => {
            fyke_serve::place::check_name(rest).map_err(|error| usage(error.to_string()))?;
            Ok(Offer::Service(rest.to_owned()))
        }
        Some((FarKind::Ring, rest)) => {
            if rest.contains(char::is_control) {
                return Err(usage("the path of the ring has a control character".to_owned()));
            }
            let path = PathBuf::from(rest);
            let file = path.file_name().and_then(|file| file.to_str()).map(str::to_owned);
            let file = file.ok_or_else(|| usage("the path of the ring is missing".to_owned()))?;
            Ok(Offer::Ring(file, path))
        }
        None => Err(usage("expected serve:NAME or ring:PATH".to_owned())),
    }
}

/// Runs `fyke relay`.
pub fn run(args: &RelayArgs) -> Result<(), Failure> {
    let offers = args.interface.iter().map(|name| offer(name)).collect::<Result<Vec<_>, _>>()?;
    if let Some(at) = (1..offers.len())
        .find(|&at| offers[..at].iter().any(|other| other.name() == offers[at].name()))
    {
        let name = offers[at].name();
        return Err(Failure::Usage(format!("-i: two sources have the name {name:?}")));
    }
    let user = args.ring_user.as_deref().map(fyke_privilege::user::User::named).transpose();
    let user = user.map_err(|error| Failure::Usage(format!("--ring-user: {error}")))?;
    let options = Options { offers, user: user.map(|user| user.uid), policy: args.config.clone() };
    if let Some(policy) = &args.config {
        fyke_remote::relay::check_policy(policy).map_err(Failure::Usage)?;
    }
    let (certificate, key) = (args.tls_cert.clone(), args.tls_key.clone());
    let files = Files { certificate, key, authorities: args.tls_clients.clone() };
    let privileges = Privileges::prepare(&args.privilege, false)?;
    let relay = Relay::bind(args.listen, &files, options, |line| note!("fyke: {line}"));
    let relay = relay.with_context(|| format!("cannot listen at {}", args.listen))?;
    let mut needs = Needs::with(Doors::Closed);
    needs.reads = args.config.iter().flat_map(|path| super::serve::files_of(path)).collect();
    (needs.makes_memory, needs.opens_sockets) = (true, true);
    let entered = privileges.enter(&needs)?;
    entered.say_missing();
    let stop = stop_on_signals()?;
    let at = relay.address().context("the address of the relay")?;
    let all = args.interface.join(", ");
    let served = match &args.config {
        Some(policy) => format!("clients with a rule in {}", policy.display()),
        None => format!("every client with a certificate of {}", args.tls_clients.display()),
    };
    note!("fyke: {all} at {at} for {served}; Ctrl-C ends fyke relay");
    relay.run(&stop);
    Ok(())
}
