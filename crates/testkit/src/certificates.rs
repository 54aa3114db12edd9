//! Certificates of a test, made by the command `openssl`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// An authority and the certificates that it has signed, in a folder.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    name: String,
}

/// Files of a certificate.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

fn openssl(words: &[&str]) {
    let output = Command::new("openssl").args(words).output().expect("openssl runs");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The options for a new key.
const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

impl Authority {
    /// True if there is an `openssl` to make certificates.
    pub fn is_possible() -> bool {
        Command::new("openssl").arg("version").output().is_ok()
    }

    /// Makes an authority with this name in a folder.
    ///
    /// # Panics
    /// `openssl` fails.
    pub fn new(folder: &Path, name: &str) -> Authority {
        let authority = Authority { folder: folder.to_owned(), name: name.to_owned() };
        let (key, certificate) = (authority.path(name, "key"), authority.file());
        let (key, certificate) = (key.to_str().unwrap(), certificate.to_str().unwrap());
        let subject = format!("/CN={name}");
        let words = ["-keyout", key, "-out", certificate, "-days", "30", "-subj", &subject];
        openssl(&[&["req", "-x509"][..], &KEY, &words].concat());
        authority
    }

    fn path(&self, name: &str, end: &str) -> PathBuf {
        self.folder.join(format!("{name}.{end}"))
    }

    /// The certificate of the authority.
    pub fn file(&self) -> PathBuf {
        self.path(&self.name, "pem")
    }

    /// Signs a certificate for a common name; `alternative` has its other names, such as `IP:10.0.0.1`.
    ///
    /// # Panics
    /// `openssl` fails.
    pub fn sign(&self, name: &str, alternative: &str) -> Certificate {
        let file = format!("{}-{name}", self.name);
        let path = |end: &str| self.path(&file, end).to_str().unwrap().to_owned();
        let (key, request, certificate) = (path("key"), path("csr"), path("pem"));
        let subject = format!("/O=fyke/CN={name}");
        let words = ["-keyout", &key, "-out", &request, "-subj", &subject];
        openssl(&[&["req", "-new"][..], &KEY, &words].concat());
        let extensions = path("ext");
        let names = format!("basicConstraints=CA:FALSE\nsubjectAltName={alternative}\n");
        std::fs::write(&extensions, names).unwrap();
        let (own, own_key) = (self.file(), self.path(&self.name, "key"));
        openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            own.to_str().unwrap(),
            "-CAkey",
            own_key.to_str().unwrap(),
            "-CAcreateserial",
            "-days",
            "30",
            "-extfile",
            &extensions,
            "-out",
            &certificate,
        ]);
        Certificate { certificate: certificate.into(), key: key.into() }
    }
}
