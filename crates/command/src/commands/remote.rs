//! Frames of other machines: the sources `serve:HOST:PORT` and `ring:HOST:PORT`.

use super::Failure;
use crate::cli::{SourceArgs, TlsArgs};
use anyhow::anyhow;
use fyke_capture::Source;
use fyke_graph::Plan;
use fyke_graph::node::{Class, MakeError, Parameter, Settings};
use fyke_remote::source::FarKind;
use fyke_remote::{Address, Files, RemoteSource};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Parameter of a device on another machine.
const RECONNECT: Parameter = Parameter {
    name: "reconnect",
    summary: "n: end when the connection to another machine is lost; by default it is made again",
};
/// The parameters of a device with the files for TLS.
const FILES: [Parameter; 3] = [
    Parameter { name: "ca", summary: "authority of the certificate of a relay on another machine" },
    Parameter { name: "cert", summary: "our certificate for a relay on another machine" },
    Parameter { name: "key", summary: "private key of our certificate" },
];

/// The class `device` that also opens services and rings of other machines.
pub fn device() -> Class {
    let local = fyke_serve::client::device();
    Class { open: open_device, parameters: parameters(), ..local }
}

fn parameters() -> &'static [Parameter] {
    static ALL: OnceLock<Vec<Parameter>> = OnceLock::new();
    let local = || fyke_serve::client::device().parameters.iter().copied();
    ALL.get_or_init(|| local().chain(FILES).chain([RECONNECT]).collect())
}

/// The kind and the rest of the name of a source in another fyke.
pub fn parted(name: &str) -> Option<(FarKind, &str)> {
    let kinds = [FarKind::Service, FarKind::Ring].into_iter();
    kinds.filter_map(|kind| Some((kind, name.strip_prefix(kind.prefix())?))).next()
}

fn open_device(settings: &Settings) -> Result<Box<dyn Source>, MakeError> {
    let name = settings.required("expression")?;
    let files = FILES.map(|file| settings.text(file.name).map(PathBuf::from));
    let (kind, rest, [Some(authorities), Some(certificate), Some(key)]) =
        (match (parted(name), files) {
            (_, [None, None, None]) => return open_local(settings, name),
            (Some((kind, rest)), files) => (kind, rest, files),
            (None, _) => {
                let why = "is for serve:HOST:PORT and ring:HOST:PORT";
                return Err(MakeError::new("ca", why));
            }
        })
    else {
        return Err(MakeError::new("ca", "a source on another machine needs ca, cert and key"));
    };
    let reconnects = settings.choice(RECONNECT.name, &["y", "n"])? == 0;
    let address: Address = rest.parse().map_err(|why: String| MakeError::new("expression", why))?;
    let files = Files { certificate, key, authorities };
    let source = RemoteSource::connect(kind, &address, &files, settings.text("graph"), reconnects);
    Ok(Box::new(source.map_err(|error| {
        let is_of_the_graph = fyke_serve::client::is_of_a_text(&error.to_string());
        match settings.text("graph").is_some() && is_of_the_graph {
            true => MakeError::new("graph", error),
            false => MakeError::refused("expression", error),
        }
    })?))
}

/// Opens a source of this machine; names the options for another one if it is not here.
fn open_local(settings: &Settings, name: &str) -> Result<Box<dyn Source>, MakeError> {
    if settings.text(RECONNECT.name).is_some() {
        return Err(MakeError::new(RECONNECT.name, "is for a source on another machine"));
    }
    let opened = (fyke_serve::client::device().open)(settings);
    let is_address = parted(name).is_some_and(|(_, rest)| rest.parse::<Address>().is_ok());
    opened.map_err(|error| match is_address {
        true => MakeError::refused(
            "expression",
            anyhow!("{error}; for one on another machine give --tls-ca, --tls-cert and --tls-key"),
        ),
        false => error,
    })
}

/// The parameters of a device for these arguments.
///
/// # Errors
/// A path is not UTF-8.
pub fn parameters_of(args: &TlsArgs) -> Result<[(&'static str, Option<String>); 4], Failure> {
    let text = |path: &Option<PathBuf>| match path.as_deref().map(Path::to_str) {
        Some(None) => Err(Failure::Usage("the name of a file for TLS is not UTF-8".to_owned())),
        Some(Some(path)) => Ok(Some(path.to_owned())),
        None => Ok(None),
    };
    Ok([
        ("ca", text(&args.tls_ca)?),
        ("cert", text(&args.tls_cert)?),
        ("key", text(&args.tls_key)?),
        (RECONNECT.name, args.no_reconnect.then(|| "n".to_owned())),
    ])
}

/// The ports of relays that sources with these names connect to again.
fn ports<'n>(names: impl Iterator<Item = &'n str>) -> impl Iterator<Item = u16> {
    let addresses = names.filter_map(|name| parted(name)?.1.parse::<Address>().ok());
    addresses.map(|address| address.port)
}

/// The ports of relays that the sources of these arguments connect to again.
pub fn ports_again(args: &SourceArgs) -> Vec<u16> {
    let again = args.tls.tls_ca.is_some() && !args.tls.no_reconnect;
    let far = args.interface.iter().filter(|_| again);
    ports(far.map(String::as_str)).collect()
}

/// The ports of relays that the sources of a graph connect to again.
pub fn ports_of(plan: &Plan) -> Vec<u16> {
    let again = |settings: &Settings| {
        let ends = settings.text(RECONNECT.name).is_some_and(|text| text.eq_ignore_ascii_case("n"));
        settings.text("ca").is_some() && !ends
    };
    let far = plan.nodes.iter().filter(|node| again(&node.settings));
    far.flat_map(|node| ports(node.interface_names())).collect()
}

/// Refuses files for TLS without a source on another machine.
///
/// # Errors
/// There is none, or its address is wrong.
pub fn check_args(args: &SourceArgs) -> Result<(), Failure> {
    if args.tls.tls_ca.is_none() {
        return Ok(());
    }
    let far: Vec<_> = args.interface.iter().filter_map(|name| parted(name)).collect();
    if far.is_empty() {
        let message = "--tls-ca: it is for -i serve:HOST:PORT and -i ring:HOST:PORT; omit it";
        return Err(Failure::Usage(message.to_owned()));
    }
    for (kind, rest) in far {
        let prefix = kind.prefix();
        let address = rest.parse::<Address>();
        address.map_err(|why| Failure::Usage(format!("-i {prefix}{rest}: {why}")))?;
    }
    Ok(())
}
