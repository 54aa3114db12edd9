//! Every example runs without arguments and holds what it asserts. `cargo test -p fyke` builds them before the tests.

use std::path::Path;
use std::process::Command;

#[test]
fn every_example_runs_without_arguments() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let sources = std::fs::read_dir(folder).expect("the folder of examples");
    let mut names: Vec<String> = sources
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .filter_map(|name| name.strip_suffix(".rs").map(str::to_owned))
        .collect();
    names.sort();
    assert!(names.len() >= 8, "{names:?}");
    // PROFILE/deps/examples-HASH runs; examples are in PROFILE/examples.
    let test = std::env::current_exe().expect("the path of this test");
    let built = test.ancestors().nth(2).expect("the folder of the profile").join("examples");
    for name in names {
        let program = built.join(&name);
        assert!(program.exists(), "build the examples first: cargo build -p fyke --examples");
        let ran = Command::new(&program).output().expect("it starts");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{name}: {}: {said}", ran.status);
        assert!(!ran.stdout.is_empty(), "{name} prints nothing");
    }
}
