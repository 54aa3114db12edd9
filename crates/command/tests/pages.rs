//! The commands in the pages of docs/: each runs, and prints what its page shows. `cargo xtask ci` runs those of
//! README.md too, which need the release build.

use std::process::Command;

fn run(page: &str) {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(std::path::Path::parent).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut xtask = Command::new(cargo);
    xtask.args(["run", "-q", "-p", "xtask", "--", "pages", "--from"]).arg(built).arg(page);
    let output = xtask.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(told.contains(&format!("{page}: ")) && !told.contains(" 0 blocks ran"), "{told}");
}

/// True if this system lets its users make network namespaces.
fn can_run() -> bool {
    let made = Command::new("unshare").args(["-Urn", "true"]).output();
    let can = made.is_ok_and(|made| made.status.success());
    if !can {
        println!("skipped: network namespaces cannot be made");
    }
    can
}

#[test]
fn the_commands_of_the_cookbook_print_what_it_shows() {
    if can_run() {
        run("docs/cookbook.md");
    }
}

#[test]
fn the_first_steps_are_right() {
    if can_run() {
        run("docs/first-steps.md");
    }
}

#[test]
fn the_exit_codes_are_those_of_the_command() {
    run("docs/exit-codes.md");
}

#[test]
fn the_recipes_graphs_accounts_and_rules_run() {
    if can_run() {
        run("docs/recipes.md");
        run("docs/graphs.md");
        run("docs/accounting.md");
        run("docs/rules.md");
    }
}
