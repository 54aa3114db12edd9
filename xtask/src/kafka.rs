//! A broker of Apache Kafka for the recipe of `docs/recipes.md`: its classes by Maven, in a folder of the target
//! folder, and a program that starts one. Nothing is installed outside of that folder.

use crate::shell::{Workspace, find_program, status};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const VERSION: &str = "4.3.1";

const PROJECT: &str = r#"<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>fyke</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies><dependency>
<groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>VERSION</version>
</dependency></dependencies></project>
"#;

/// Starts a broker at 127.0.0.1:9092 with its data in a new folder.
const BROKER: &str = r#"#!/bin/sh
[ $# = 1 ] && mkdir "$1" || { echo 'usage: kafka-broker NEW_FOLDER' >&2; exit 2; }
classes="$(dirname "$0")/classes/*"
cat > "$1/properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
log.dirs=$1/logs
offsets.topic.replication.factor=1
END
java -cp "$classes" kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAQ -c "$1/properties" || exit
exec java -Xmx256m -cp "$classes" kafka.Kafka "$1/properties"
"#;

/// The folder with the program `kafka-broker`, once it is there.
///
/// # Errors
/// The place of the target folder is unknown.
pub fn folder(workspace: &Workspace) -> Result<PathBuf, String> {
    Ok(workspace.target_dir()?.join("kafka"))
}

/// Downloads the classes once, 44 MB. Without them the recipe is skipped, and its place is printed.
///
/// # Errors
/// A file in the target folder cannot be written.
pub fn prepare(workspace: &Workspace) -> Result<(), String> {
    let folder = folder(workspace)?;
    let (ready, project) = (folder.join("READY"), folder.join("pom.xml"));
    let is_there = fs::read_to_string(&ready).is_ok_and(|there| there == VERSION);
    if is_there || find_program("java").is_none() {
        return Ok(());
    }
    if find_program("mvn").is_none() {
        eprintln!("set-up: mvn not found (optional: without it the recipe for Kafka is skipped)");
        return Ok(());
    }
    eprintln!("set-up: downloading Apache Kafka {VERSION} into {}", folder.display());
    write(&project, &PROJECT.replace("VERSION", VERSION))?;
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "dependency:copy-dependencies"]);
    maven.arg("-DoutputDirectory=classes").current_dir(&folder);
    // Standard output belongs to the step after the set-up.
    maven.stdout(std::io::stderr());
    if status(&mut maven) != Ok(ExitCode::SUCCESS) {
        eprintln!("set-up: mvn failed (without these classes the recipe for Kafka is skipped)");
        return Ok(());
    }
    let broker = folder.join("kafka-broker");
    write(&broker, BROKER)?;
    fs::set_permissions(&broker, fs::Permissions::from_mode(0o755))
        .map_err(|e| format!("{}: {e}", broker.display()))?;
    write(&ready, VERSION)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|e| format!("{}: {e}", path.display()))
}
