//! Lists the class folders, so that adding a class changes nothing but its folder.

use std::fmt::Write;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=src/classes");
    let crate_folder =
        std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let folder = Path::new(&crate_folder).join("src/classes");
    let entries = std::fs::read_dir(&folder).expect("src/classes is there");
    let folders = entries.map(|entry| entry.expect("a readable entry").path());
    let mut names: Vec<_> = folders
        .filter(|path| path.join("class.rs").exists())
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    let mut text = String::new();
    for name in &names {
        let path = folder.join(name).join("class.rs");
        writeln!(text, "#[path = {path:?}]\nmod {name};").expect("a string takes it");
    }
    let list: Vec<_> = names.iter().map(|name| format!("{name}::CLASS")).collect();
    writeln!(text, "static ALL: &[Class] = &[{}];", list.join(", ")).expect("a string takes it");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&out).join("classes.rs"), text)
        .expect("the output folder is writable");
}
