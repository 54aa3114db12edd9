//! A world without privileges: an ordinary user creates one through a user namespace, and FTP runs in it.
//!
//! It does not use the test harness: its threads would prevent the kernel from granting a user namespace. As root
//! it starts itself again as user 65534.

use fyke_lab::ftp::{Exercise, Options, Stop};
use fyke_lab::net::{Privilege, World, WorldError};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

const NOBODY: u32 = 65_534;

fn main() -> ExitCode {
    if !nix::unistd::getuid().is_root() {
        return exercise();
    }
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return skip(&error.to_string()),
    };
    match Command::new(program).uid(NOBODY).gid(NOBODY).current_dir("/").status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            println!("as user {NOBODY}: {status}");
            ExitCode::FAILURE
        }
        Err(error) => skip(&format!("user {NOBODY} cannot run this test: {error}")),
    }
}

fn skip(reason: &str) -> ExitCode {
    println!("skipped: {reason}");
    ExitCode::SUCCESS
}

fn exercise() -> ExitCode {
    let world = match World::create(2, 2) {
        Ok(world) => world,
        Err(refused @ WorldError::Refused { .. }) => return skip(&refused.to_string()),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(world.privilege, Privilege::UserNamespace);
    let options = Options {
        servers: 2,
        connections: 3,
        interval: Duration::from_millis(20),
        size_bytes: 10_000,
        ..Options::default()
    };
    let stop = Stop::after(Duration::from_secs(5));
    let log = Exercise::start(&world, options, stop).unwrap().finish();
    assert!(log.failures.is_empty(), "{:?}", log.failures);
    assert_eq!(log.transfers.len(), 6);
    println!("test an_ordinary_user_gets_a_world ... ok");
    ExitCode::SUCCESS
}
