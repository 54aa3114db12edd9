//! `fyke explain -r FILE`: counts how often each primitive was evaluated and true, and shows the results for one frame.

use super::super::Failure;
use anyhow::Context;
use fyke_capture::{Next, Source};
use fyke_filter::{Options, Predicate, Primitive, Reading};
use fyke_frame::{Frame, LinkType, OutOfBounds, walk};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

/// The link type of a file's first interface.
pub fn link_of(path: &Path) -> Result<LinkType, Failure> {
    let source = fyke_capture::open_file(path)?;
    let first = source.interfaces().first().map(|interface| interface.link);
    Ok(first.with_context(|| format!("{} names no interface", path.display()))?)
}

/// Counts of one primitive.
#[derive(Default)]
struct Hits {
    asked: u64,
    held: u64,
    unreadable: u64,
}

/// Counts over the whole file.
#[derive(Default)]
struct Totals {
    frames: u64,
    accepted: u64,
    foreign: u64,
    /// In the scoped reading: frames that the compat reading accepts, and frames that only one reading accepts, with
    /// the number of the first.
    compat: u64,
    only_scoped: (u64, u64),
    only_compat: (u64, u64),
}

/// Evaluates all frames and writes the counts, and the results of each primitive for frame number `chosen`.
pub fn over_file(
    out: &mut String,
    predicate: &Predicate,
    options: &Options,
    path: &Path,
    chosen: Option<u64>,
) -> Result<(), Failure> {
    let primitives: Vec<&Primitive> = predicate.root().primitives().collect();
    let mut hits: Vec<Hits> = primitives.iter().map(|_| Hits::default()).collect();
    let places: HashMap<*const Primitive, usize> =
        primitives.iter().enumerate().map(|(at, one)| (std::ptr::from_ref(*one), at)).collect();
    let place = |asked: &Primitive| places.get(&std::ptr::from_ref(asked)).copied();
    let compat = (predicate.reading() == Reading::Scoped)
        .then(|| {
            let options = Options { reading: Reading::Compat, ..*options };
            fyke_filter::compile(predicate.text(), &options).ok()
        })
        .flatten();
    let mut totals = Totals::default();
    let mut story = None;
    each_frame(path, |frame| {
        totals.frames += 1;
        if frame.link != predicate.link() {
            totals.foreign += 1;
            return;
        }
        let verdict = predicate.trace(frame, &mut |primitive, answer| {
            let Some(hits) = place(primitive).and_then(|at| hits.get_mut(at)) else { return };
            hits.asked += 1;
            hits.held += u64::from(answer == Ok(true));
            hits.unreadable += u64::from(answer.is_err());
        });
        let accepted = verdict == Ok(true);
        totals.accepted += u64::from(accepted);
        if let Some(compat) = &compat {
            totals.compare(accepted, compat.accepts(frame));
        }
        if chosen == Some(totals.frames) {
            story = Some(why(predicate, frame, totals.frames));
        }
    })?;
    if let Some(number) = chosen {
        let Some(story) = story else {
            let frames = totals.frames;
            return Err(Failure::Usage(match number <= frames {
                true => format!("frame {number} is not of link type {}", predicate.link()),
                false => format!("there is no frame {number}: the file has {frames} frames"),
            }));
        };
        out.push_str(&story);
    }
    totals.write(out, compat.is_some(), predicate)?;
    for (primitive, hits) in primitives.iter().zip(&hits).take(super::tree::MAX_SHOWN) {
        write!(out, "  {:>9} evaluated, {} true", hits.asked, hits.held)?;
        if hits.unreadable > 0 {
            write!(out, ", {} unreadable", hits.unreadable)?;
        }
        writeln!(out, "  {primitive}")?;
    }
    if primitives.len() > super::tree::MAX_SHOWN {
        writeln!(out, "  … and {} more", primitives.len() - super::tree::MAX_SHOWN)?;
    }
    Ok(())
}

impl Totals {
    fn compare(&mut self, scoped: bool, compat: bool) {
        self.compat += u64::from(compat);
        let only = match (scoped, compat) {
            (true, false) => &mut self.only_scoped,
            (false, true) => &mut self.only_compat,
            _ => return,
        };
        if only.0 == 0 {
            only.1 = self.frames;
        }
        only.0 += 1;
    }

    fn write(
        &self,
        out: &mut String,
        with_compat: bool,
        predicate: &Predicate,
    ) -> std::fmt::Result {
        writeln!(out, "file    {} of {} frames accepted", self.accepted, self.frames)?;
        if self.foreign > 0 {
            writeln!(out, "        {} are not of link type {}", self.foreign, predicate.link())?;
        }
        if with_compat {
            writeln!(out, "        compat accepts {}", self.compat)?;
            let differ = [("only scoped", self.only_scoped), ("only compat", self.only_compat)];
            for (name, (count, first)) in differ.into_iter().filter(|(_, (count, _))| *count > 0) {
                writeln!(out, "        {name}: {count}, first frame {first}")?;
            }
        }
        Ok(())
    }
}

/// Describes the verdict on a frame: the result of each primitive, up to the one that decided.
fn why(predicate: &Predicate, frame: &Frame, number: u64) -> String {
    let mut results = String::new();
    let verdict = predicate.trace(frame, &mut |primitive, answer| {
        let word = match answer {
            Ok(true) => "yes",
            Ok(false) => "no",
            Err(OutOfBounds) => "cannot be read",
        };
        let _infallible = writeln!(results, "  {word:>14}  {primitive}");
    });
    let layers = walk::walk(frame);
    let headers: Vec<String> =
        layers.iter().map(|layer| format!("{:?}@{}", layer.protocol, layer.offset)).collect();
    let outcome = match verdict {
        Ok(true) => "is accepted",
        Ok(false) => "is rejected",
        Err(OutOfBounds) => "is rejected: the frame lacks bytes that the filter reads",
    };
    let (captured, wire) = (frame.data.len(), frame.wire_len);
    format!(
        "frame {number} {outcome}\n  {captured} of {wire} bytes: {} ({})\n{results}",
        headers.join(" "),
        layers.stop()
    )
}

fn each_frame(path: &Path, mut judge: impl FnMut(&Frame)) -> Result<(), Failure> {
    let mut source = fyke_capture::open_file(path)?;
    loop {
        match source.next()? {
            Next::Frames(batch, _) => batch.frames().iter().for_each(&mut judge),
            Next::Idle => {}
            Next::End => return Ok(()),
        }
    }
}
