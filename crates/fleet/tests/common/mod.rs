//! A group at a server of its own, with one trusted author.
#![allow(dead_code, reason = "each test file uses its part")]

use fyke_fleet::Name;
use fyke_fleet::broker::{Broker, Options};
use fyke_fleet::keys::{Author, Trusted};
use fyke_testkit::nats::NatsServer;
use std::path::Path;

/// The server, and the author.
pub struct Served {
    pub server: NatsServer,
    pub author: Author,
    pub options: Options,
    folder: tempfile::TempDir,
}

/// The group.
pub fn edge() -> Name {
    Name::new("edge").unwrap()
}

/// A new key in a folder.
pub fn author(folder: &Path, name: &str) -> Author {
    Author::create(&folder.join(name), Name::new(name).unwrap()).unwrap()
}

/// The address of a server on this machine.
pub fn at(port: u16) -> Options {
    Options { server: format!("nats://127.0.0.1:{port}"), ..Options::default() }
}

impl Served {
    /// Starts the server; `None`, with the reason, without the program.
    pub fn start() -> Option<Served> {
        let folder = tempfile::tempdir().unwrap();
        let server = NatsServer::anywhere(&folder.path().join("store"))?;
        let (author, options) = (author(folder.path(), "anna"), at(server.port()));
        Some(Served { server, author, options, folder })
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn trusted(&self) -> Trusted {
        Trusted::from_text(&self.author.public_line()).unwrap()
    }

    /// Connects to the group, which is made by the first connection.
    pub async fn connect(&self, name: &str) -> Broker {
        Broker::connect(&self.options, edge(), name).await.unwrap()
    }
}
