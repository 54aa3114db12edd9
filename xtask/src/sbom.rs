//! The list of the crates in the command and the libraries (SBOM), as CycloneDX 1.5 in JSON, from `cargo tree` and
//! `Cargo.lock`. Without a time and a serial number, so that the same sources give the same bytes.
//! Source: ECMA-424.

use crate::shell::{Workspace, shown};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The packages that are delivered.
const DELIVERED: [&str; 3] = ["fyke-command", "fyke-c", "fyke-libpcap"];

/// A crate: name and version.
type Crate = (String, String);

/// The crates, their licences, and those that each uses.
#[derive(Debug, Default)]
struct Parts {
    licences: BTreeMap<Crate, String>,
    uses: BTreeMap<Crate, BTreeSet<Crate>>,
}

/// The whole text.
pub fn text(workspace: &Workspace) -> Result<String, String> {
    let mut command = workspace.cargo(&["tree", "--locked", "--edges", "normal"]);
    command.args(["--prefix", "depth", "--format", "|{p}|{l}"]);
    for name in DELIVERED {
        command.args(["--package", name]);
    }
    let ran = command.output().map_err(|e| format!("cannot start `{}`: {e}", shown(&command)))?;
    if !ran.status.success() {
        return Err(String::from_utf8_lossy(&ran.stderr).into_owned());
    }
    let lock = workspace.root.join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock).map_err(|e| format!("{}: {e}", lock.display()))?;
    let parts = parts(&String::from_utf8_lossy(&ran.stdout))?;
    Ok(document(&parts, &sums(&lock)))
}

/// Reads lines such as `2|libc v0.2.1|MIT`, with the depth in the tree first.
fn parts(tree: &str) -> Result<Parts, String> {
    let (mut parts, mut path) = (Parts::default(), Vec::<Crate>::new());
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let wrong = || format!("cargo tree: {line:?} is not depth|name version|licence");
        let mut fields = line.split('|');
        let (depth, named, licence) =
            (fields.next(), fields.next(), fields.next().unwrap_or_default());
        let depth: usize = depth.and_then(|depth| depth.parse().ok()).ok_or_else(wrong)?;
        let mut words = named.ok_or_else(wrong)?.split(' ');
        let name = words.next().ok_or_else(wrong)?.to_owned();
        let version = words.next().and_then(|word| word.strip_prefix('v')).ok_or_else(wrong)?;
        let one = (name, version.to_owned());
        path.truncate(depth);
        if let Some(user) = path.last() {
            parts.uses.entry(user.clone()).or_default().insert(one.clone());
        }
        // A mark at the end: its own crates are listed elsewhere.
        let licence = licence.trim_end_matches("(*)").trim().replace('/', " OR ");
        let licence = licence.split_whitespace().collect::<Vec<_>>().join(" ");
        parts.licences.insert(one.clone(), licence);
        path.push(one);
    }
    Ok(parts)
}

/// The SHA-256 sums of the crates from the registry.
fn sums(lock: &str) -> BTreeMap<Crate, String> {
    let value = |entry: &str, key: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        line.map(|line| line.trim_matches('"').to_owned())
    };
    let entries = lock.split("[[package]]").skip(1);
    let found = entries.filter_map(|entry| {
        Some(((value(entry, "name")?, value(entry, "version")?), value(entry, "checksum")?))
    });
    found.collect()
}

fn reference((name, version): &Crate) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

fn document(parts: &Parts, sums: &BTreeMap<Crate, String>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut out = format!(
        "{{\"bomFormat\":\"CycloneDX\",\"specVersion\":\"1.5\",\"version\":1,\n\"metadata\":{{\"component\":\
         {{\"type\":\"application\",\"bom-ref\":\"fyke\",\"name\":\"fyke\",\"version\":\"{version}\"}}}},\n\
         \"components\":[\n"
    );
    for (at, (one, licence)) in parts.licences.iter().enumerate() {
        let comma = if at == 0 { "" } else { ",\n" };
        let (name, version, reference) = (&one.0, &one.1, reference(one));
        let _infallible = write!(
            out,
            "{comma}{{\"type\":\"library\",\"bom-ref\":\"{reference}\",\"name\":\"{name}\",\
             \"version\":\"{version}\",\"purl\":\"{reference}\""
        );
        if !licence.is_empty() {
            let _infallible = write!(out, ",\"licenses\":[{{\"expression\":\"{licence}\"}}]");
        }
        if let Some(sum) = sums.get(one) {
            let _infallible =
                write!(out, ",\"hashes\":[{{\"alg\":\"SHA-256\",\"content\":\"{sum}\"}}]");
        }
        out.push('}');
    }
    out.push_str("\n],\n\"dependencies\":[\n");
    let list = |of: &mut dyn Iterator<Item = String>| {
        of.map(|one| format!("\"{one}\"")).collect::<Vec<_>>().join(",")
    };
    let delivered = parts.licences.keys().filter(|one| DELIVERED.contains(&one.0.as_str()));
    let delivered = list(&mut delivered.map(reference));
    let _infallible = write!(out, "{{\"ref\":\"fyke\",\"dependsOn\":[{delivered}]}}");
    for (one, uses) in &parts.uses {
        let (one, uses) = (reference(one), list(&mut uses.iter().map(reference)));
        let _infallible = write!(out, ",\n{{\"ref\":\"{one}\",\"dependsOn\":[{uses}]}}");
    }
    out.push_str("\n]}\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "0|fyke-command v0.1.0 (/x)|MIT OR Apache-2.0\n1|libc v0.2.1|MIT/Apache-2.0\n\
                        1|zstd v0.13.0+z1.5|BSD-3-Clause\n2|libc v0.2.1|MIT/Apache-2.0 (*)\n";

    #[test]
    fn crates_licences_and_uses_are_read() {
        let parts = parts(TREE).unwrap();
        let libc = ("libc".to_owned(), "0.2.1".to_owned());
        assert_eq!(parts.licences[&libc], "MIT OR Apache-2.0");
        let users: Vec<_> = parts
            .uses
            .iter()
            .filter(|(_, uses)| uses.contains(&libc))
            .map(|one| &one.0.0)
            .collect();
        assert_eq!(users, ["fyke-command", "zstd"]);
        let lock = "[[package]]\nname = \"libc\"\nversion = \"0.2.1\"\nchecksum = \"ab\"\n";
        let text = document(&parts, &sums(lock));
        assert!(text.contains("\"content\":\"ab\""), "{text}");
        assert!(text.contains("pkg:cargo/zstd@0.13.0%2Bz1.5"), "{text}");
        let root = "{\"ref\":\"fyke\",\"dependsOn\":[\"pkg:cargo/fyke-command@0.1.0\"]}";
        assert!(text.contains(root), "{text}");
    }

    #[test]
    fn other_lines_are_refused() {
        assert!(parts("fyke v0.1.0").is_err() && parts("0|fyke").is_err());
    }
}
