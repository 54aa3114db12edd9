//! "Opt-C": filters as C, compiled when the bench starts by the machine's own compiler for this very processor.
//!
//! `opt_c/filters.c` has F1–F6 written by hand in three forms; [`generate`] turns any other filter text into plain
//! C. This file is a fence: it loads what it compiled and calls it.
#![allow(unsafe_code, reason = "loads a shared object that was compiled here and calls it")]

pub mod generate;

use super::native::{AHEAD, Descriptor};
use crate::bench::filters::HOSTS_38;
use libloading::Library;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, io, process};

const STATIC_FILTERS: &str = include_str!("opt_c/filters.c");

/// Judges frames: descriptors, how many, where the verdicts go (a bit each).
type JudgeMany = unsafe extern "C" fn(*const Descriptor<'_>, usize, *mut u64);

/// Why there is no compiled C.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The compiler could not be started, or a file not be written.
    #[error("the C compiler `cc` does not run: {0}")]
    Start(#[from] io::Error),
    /// The compiler refuses the source.
    #[error("the C compiler refuses: {0}")]
    Refused(String),
    /// The result cannot be loaded.
    #[error(transparent)]
    Load(#[from] libloading::Error),
}

/// Compiled C.
#[derive(Debug, Clone)]
pub struct Object(Arc<Library>);

/// A function of it.
#[derive(Debug, Clone)]
pub struct Function {
    judge: JudgeMany,
    _object: Object,
}

/// A folder that goes away with its contents.
pub(super) struct Folder(pub(super) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing can be done about what is left over in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    pub(super) fn new() -> io::Result<Folder> {
        use std::os::unix::fs::DirBuilderExt;
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("fyke-opt-c-{}-{number}", process::id()));
        // Fails when somebody has made it already: nobody else may put a library there.
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }
}

impl Object {
    /// The hand-written filters F1–F6.
    ///
    /// # Errors
    /// When there is no C compiler.
    pub fn static_filters() -> Result<Object, CompileError> {
        let cases: String = HOSTS_38
            .iter()
            .map(|host| format!("case {:#x}u: ", u32::from_be_bytes(*host)))
            .collect();
        let padded = HOSTS_38.iter().cycle().take(48);
        let list: Vec<String> =
            padded.map(|[a, b, c, d]| format!("N32({a}, {b}, {c}, {d})")).collect();
        let source = STATIC_FILTERS.replace("HOST_CASES", &cases);
        Object::compile(&source.replace("HOST_LIST", &list.join(", ")))
    }

    /// Compiles a source. Only for sources that are part of this crate or made by [`generate`]: what is called
    /// from the result is trusted to keep to the frames' bytes.
    pub(crate) fn compile(source: &str) -> Result<Object, CompileError> {
        let folder = Folder::new()?;
        let (input, output) = (folder.0.join("filters.c"), folder.0.join("filters.so"));
        fs::write(&input, source)?;
        let flags = ["-O3", "-march=native", "-w", "-shared", "-fPIC", "-o"];
        let run = Command::new("cc").args(flags).arg(&output).arg(&input).output()?;
        if !run.status.success() {
            let text = String::from_utf8_lossy(&run.stderr);
            return Err(CompileError::Refused(text.lines().next().unwrap_or_default().to_owned()));
        }
        // SAFETY: the object was compiled here, in a folder of our own, and has no initialisers.
        let library = unsafe { Library::new(&output) }?;
        Ok(Object(Arc::new(library)))
    }

    /// A function by its name, such as `plain_5`.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn function(&self, name: &str) -> Result<Function, CompileError> {
        // SAFETY: every function of our sources that is not static has this type.
        let judge = unsafe { *self.0.get::<JudgeMany>(name.as_bytes())? };
        Ok(Function { judge, _object: self.clone() })
    }
}

impl Function {
    /// Judges the first `count` frames.
    ///
    /// # Panics
    /// When there are fewer descriptors than `count` + [`AHEAD`] or too few words for the verdicts.
    pub fn judge(&self, descriptors: &[Descriptor], count: usize, verdicts: &mut [u64]) {
        assert!(count == 0 || count + AHEAD <= descriptors.len());
        assert!(count <= verdicts.len() * 64);
        // SAFETY: the frames are borrowed and the lengths were checked; our sources compare every load with the
        // frame's length, write one word per 64 frames, and look ahead by no more than `AHEAD` descriptors.
        unsafe { (self.judge)(descriptors.as_ptr(), count, verdicts.as_mut_ptr()) }
    }
}
