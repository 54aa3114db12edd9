//! `fyke extcap`: captures of fyke as interfaces of Wireshark, tshark and dumpcap.
//!
//! Wireshark starts each program in its extcap folders with options of its own (`--extcap-interfaces`, …) and reads
//! lines from standard output, so nothing else is printed there. A capture is a `fyke dump` that writes pcapng to the
//! pipe of Wireshark; [`session`] edits it by its control socket as the toolbar asks for. Source: Wireshark
//! Developer's Guide, "Extcap".

mod call;
mod control;
mod folders;
mod session;
mod toolbar;

use super::Failure;
use crate::cli::ExtcapArgs;
use anyhow::Context;
use call::Call;
use folders::Folders;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Begin of the names of our interfaces.
const PREFIX: &str = "fyke:";
/// The interface for captures on other machines; no interface of Linux has a slash.
const FAR: &str = "/relay";
/// Name of the link in an extcap folder.
const LINK: &str = "fyke";

/// True if Wireshark calls this program: its first argument is one of that interface.
pub fn is_called() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| {
        let word = word.to_string_lossy();
        word.starts_with("--extcap-") || word == "--capture"
    })
}

/// Answers the call of Wireshark in the arguments of the process.
pub fn answer() -> Result<(), Failure> {
    answer_words(std::env::args_os().skip(1))
}

/// Runs the command.
pub fn run(args: &ExtcapArgs) -> Result<(), Failure> {
    if let Some(folder) = &args.install {
        return install(folder.as_deref());
    }
    if let Some(folder) = &args.uninstall {
        return uninstall(&installed_in(folder.as_deref())?);
    }
    if args.words.is_empty() {
        let message =
            "nothing to do: --install links fyke into Wireshark's folder; fyke extcap --help";
        return Err(Failure::Usage(message.to_owned()));
    }
    answer_words(args.words.iter().cloned())
}

fn answer_words(words: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let call = Call::read(words).map_err(Failure::Usage)?;
    let text = match &call {
        Call::Interfaces => interfaces()?,
        Call::Config(interface) => config(interface),
        Call::LinkTypes(interface) => link_types(interface)?,
        Call::Check { interface, filter } => check(interface, filter)?,
        Call::Capture(capture) => return session::run(capture),
    };
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The interfaces, and the controls of the toolbar.
fn interfaces() -> Result<String, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!("extcap {{version={version}}}{{display=fyke}}\n");
    for interface in fyke_capture::interfaces_available()? {
        let name = &interface.name;
        if interface.up {
            text += &format!(
                "interface {{value={PREFIX}{name}}}{{display=fyke: {name}, live filter}}\n"
            );
        }
    }
    for name in fyke_serve::place::names() {
        let shown = format!("fyke: {name} of fyke serve");
        text += &format!("interface {{value={PREFIX}serve:{name}}}{{display={shown}}}\n");
    }
    let shown = "fyke: a capture on another machine, of fyke relay";
    text += &format!("interface {{value={PREFIX}{FAR}}}{{display={shown}}}\n");
    Ok(text + toolbar::CONTROLS)
}

/// The options of a capture in Wireshark's dialogue.
fn config(interface: &str) -> String {
    let all = "arg {number=0}{call=--scoped}{display=Read the filter by meaning}{type=boolflag}{default=false}\
     {tooltip=Innermost packet, outer (...), layer N (...); tags do not shift offsets}\n\
     arg {number=1}{call=--snaplen}{display=Bytes of each frame}{type=integer}{range=0,262144}{default=0}\
     {tooltip=0: whole frames}\n\
     arg {number=2}{call=--no-promiscuous}{display=Not promiscuous}{type=boolflag}{default=false}\n\
     arg {number=3}{call=--annotate}{display=Name the filter of each frame}{type=boolflag}{default=false}\
     {tooltip=A comment: the filter and the pass that accepted the frame, and the epoch}\n"
        .to_owned();
    match interface.strip_prefix(PREFIX) == Some(FAR) {
        true => all + CONFIG_FAR,
        false => all,
    }
}

/// The options of a capture on another machine.
const CONFIG_FAR: &str = "\
    arg {number=4}{call=--server}{display=Relay}{type=string}{required=true}\
    {tooltip=HOST:PORT, or HOST:PORT/NAME if it offers several captures}\n\
    arg {number=5}{call=--tls-ca}{display=Its authority}{type=fileselect}{mustexist=true}{required=true}\
    {tooltip=PEM}\n\
    arg {number=6}{call=--tls-cert}{display=Our certificate}{type=fileselect}{mustexist=true}{required=true}\
    {tooltip=PEM}\n\
    arg {number=7}{call=--tls-key}{display=Its private key}{type=fileselect}{mustexist=true}{required=true}\
    {tooltip=PEM}\n";

/// The link type, by which Wireshark names the interface. pcapng tells the real one of each frame.
fn link_types(interface: &str) -> Result<String, Failure> {
    let found = available(interface.strip_prefix(PREFIX).unwrap_or(interface))?;
    let link = found.map_or(fyke_frame::LinkType::EN10MB, |it| it.link);
    Ok(format!("dlt {{number={}}}{{name={link}}}{{display={link}}}\n", link.0))
}

/// The interface of this machine with that name, without our prefix; `None` for a service or a relay.
fn available(name: &str) -> std::io::Result<Option<fyke_capture::Available>> {
    Ok(fyke_capture::interfaces_available()?.into_iter().find(|it| it.name == name))
}

/// Words that only a text has that is read by meaning.
const WORDS_OF_MEANING: [&str; 3] = ["outer", "layer", "any"];

/// The reason why the interface would refuse a filter; empty if it would not. Wireshark does not say if the text will
/// be read by meaning, so a text with words of that reading is read so.
fn check(interface: &str, filter: &str) -> Result<String, Failure> {
    use fyke_filter::{Options, Reading};
    let found = available(interface.strip_prefix(PREFIX).unwrap_or(interface))?;
    let (link, netmask) =
        found.map_or((fyke_frame::LinkType::EN10MB, 0), |it| (it.link, it.netmask));
    let options = Options {
        link,
        netmask: Some(netmask),
        live: true,
        resolve: Some(fyke_filter::system_resolver),
        ..Options::default()
    };
    let mut words = filter.split(|letter: char| !letter.is_ascii_alphanumeric());
    let reading = match words.any(|word| WORDS_OF_MEANING.contains(&word)) {
        true => Reading::Scoped,
        false => Reading::Compat,
    };
    Ok(match fyke_filter::compile(filter, &Options { reading, ..options }) {
        Ok(_) => String::new(),
        Err(error) => format!("{error}\n"),
    })
}

/// The folder for the link if none is given: one that the installed tshark reads.
fn default_folder(read: Option<&Folders>) -> Result<PathBuf, Failure> {
    let Some(read) = read else {
        return match rustix::process::geteuid().is_root().then(system_folder).flatten() {
            Some(system) => Ok(system),
            None => personal_folder(),
        };
    };
    let is_root = rustix::process::geteuid().is_root();
    let own = if is_root { &read.system } else { &read.personal };
    if let Some(own) = own {
        return Ok(own.clone());
    }
    let folders = listed(read);
    let message = match is_root {
        true => format!(
            "tshark reads no folder of the system, only {folders}; name it: fyke extcap --install FOLDER"
        ),
        false => format!(
            "this tshark reads no folder of a user, only {folders} (before Wireshark 4.2): root has to install it for \
             all users: sudo fyke extcap --install"
        ),
    };
    Err(Failure::Running(anyhow::anyhow!(message)))
}

fn listed(read: &Folders) -> String {
    read.all().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" and ")
}

/// The folder of this user in Wireshark 4.2 and later.
fn personal_folder() -> Result<PathBuf, Failure> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.context("HOME is not set; name the folder: fyke extcap --install FOLDER")?;
    Ok(Path::new(&home).join(".local/lib/wireshark/extcap"))
}

/// The folder with the link that is to be removed: the given one, or the first of the default ones that has it.
fn installed_in(folder: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(folder) = folder {
        return Ok(folder.to_owned());
    }
    let read = Folders::of_tshark();
    let default = default_folder(read.as_ref());
    let places = default.as_ref().ok().cloned().into_iter().chain(personal_folder());
    match places.into_iter().find(|place| is_our_link(&place.join(LINK))) {
        Some(place) => Ok(place),
        None => default,
    }
}

/// The folder of the installed Wireshark.
fn system_folder() -> Option<PathBuf> {
    let multiarch = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let libraries = multiarch.map(|entry| entry.path()).filter(|path| path.is_dir());
    let fixed = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
    let folders = fixed.into_iter().chain(libraries);
    folders.map(|library| library.join("wireshark/extcap")).find(|folder| folder.is_dir())
}

fn install(given: Option<&Path>) -> Result<(), Failure> {
    let read = Folders::of_tshark();
    let folder =
        given.map_or_else(|| default_folder(read.as_ref()), |given| Ok(given.to_owned()))?;
    let folder = folder.as_path();
    let program = std::env::current_exe().context("cannot find this program")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let link = folder.join(LINK);
    if is_our_link(&link) {
        std::fs::remove_file(&link)
            .with_context(|| format!("cannot replace {}", link.display()))?;
    }
    std::os::unix::fs::symlink(&program, &link)
        .with_context(|| format!("cannot make the link {}", link.display()))?;
    let seen = match &read {
        Some(read) if read.contains(folder) => "tshark -D lists its interfaces".to_owned(),
        Some(read) => {
            format!("the installed tshark does not read this folder, only {}", listed(read))
        }
        None => "no tshark tells its folders here: see in Wireshark (Help, About, Folders) that it reads this one"
            .to_owned(),
    };
    note!("fyke: {} -> {}; {seen}", link.display(), program.display());
    Ok(())
}

fn uninstall(folder: &Path) -> Result<(), Failure> {
    let link = folder.join(LINK);
    if !is_our_link(&link) {
        return Err(Failure::Running(anyhow::anyhow!("{} is no link to fyke", link.display())));
    }
    std::fs::remove_file(&link).with_context(|| format!("cannot remove {}", link.display()))?;
    Ok(())
}

/// True for a link to a program called fyke, also one that is not there any more.
fn is_our_link(link: &Path) -> bool {
    std::fs::read_link(link).is_ok_and(|to| to.file_name().is_some_and(|name| name == LINK))
}
