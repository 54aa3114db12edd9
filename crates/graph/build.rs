//! Lists the class folders, so that adding a class changes nothing but its folder, and gathers their `README.md` files
//! into one page for the documentation.

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
    let write = |name: &str, text: String| {
        std::fs::write(Path::new(&out).join(name), text).expect("the output folder is writable");
    };
    write("classes.rs", text);
    write("classes.md", names.iter().map(|name| section(&folder.join(name))).collect());
}

/// Returns the description of a class as a section of the page: its headings one level deeper, and its links to other
/// classes as links within the page.
fn section(folder: &Path) -> String {
    let path = folder.join("README.md");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let deeper = text.lines().map(|line| match line.starts_with('#') {
        true => format!("#{line}\n"),
        false => format!("{}\n", line.replace("](../", "](#").replace("/README.md)", ")")),
    });
    deeper.collect::<String>() + "\n"
}
