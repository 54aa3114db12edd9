//! Files that are read ahead give what the simple reader gives: the same frames, the same errors at the same bytes.
//! Files that change while they are read, and several files as one.

mod common;

use common::{Owned, captures, drain};
use fyke_capture::{
    FileOptions, FileSource, MAX_FILES, MemorySource, MergedFiles, Next, Source, WriteOptions,
    create_file,
};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::random::Random;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Frames and error of a file. Without `ahead`, one thread reads it from start to end.
fn read(path: &Path, read_ahead: bool) -> (Vec<Owned>, Option<String>) {
    let options = FileOptions { read_ahead, ..FileOptions::default() };
    match FileSource::open(path, options) {
        Ok(mut source) => {
            let (frames, error) = drain(&mut source);
            (frames, error.map(|error| error.to_string()))
        }
        Err(error) => (Vec::new(), Some(error.to_string())),
    }
}

/// A file of frames of random lengths, some of them longer than a block that is read at a time leaves room for.
fn long_file(folder: &Path, name: &str, seed: u64, frames: usize) -> PathBuf {
    let mut random = Random::new(seed);
    let mut memory = MemorySource::new(LinkType::EN10MB);
    for number in 0..frames {
        let len = if random.chance(200) { random.below(260_000) } else { random.below(1500) };
        let data = vec![number as u8; 14 + len];
        let timestamp_ns = number as u64 * 1_000_000 + random.below(900_000) as u64;
        memory.push(&Frame { timestamp_ns, ..Frame::new(LinkType::EN10MB, &data) });
    }
    let path = folder.join(name);
    let mut sink = create_file(&path, WriteOptions::default()).unwrap();
    while let Ok(Next::Frames(batch, look_back)) = memory.next() {
        for frame in batch.frames() {
            sink.write(&look_back.interfaces()[0], frame).unwrap();
        }
    }
    sink.finish().unwrap();
    path
}

#[test]
fn every_capture_reads_the_same_ahead() {
    let mut files = 0;
    for path in captures() {
        let (simple, ahead) = (read(&path, false), read(&path, true));
        assert!(simple == ahead, "{}: {:?} but {:?}", path.display(), simple.1, ahead.1);
        files += 1;
    }
    assert!(files > 100, "{files} files");
}

#[test]
fn small_captures_cut_at_every_byte_read_the_same_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut");
    let small = |path: &PathBuf| path.metadata().is_ok_and(|file| file.len() < 1500);
    let malformed = captures().into_iter().filter(small);
    let mut cuts = 0;
    for path in malformed.take(25) {
        let bytes = std::fs::read(&path).unwrap();
        for len in 0..bytes.len() {
            std::fs::write(&cut, &bytes[..len]).unwrap();
            let (simple, ahead) = (read(&cut, false), read(&cut, true));
            assert!(simple == ahead, "{} cut to {len}: {simple:?}", path.display());
            cuts += 1;
        }
    }
    assert!(cuts > 1000, "{cuts} cuts");
}

#[test]
fn long_files_read_the_same_ahead_wherever_they_end() {
    let folder = tempfile::tempdir().unwrap();
    for (seed, name) in [(1, "a.pcap"), (2, "b.pcapng")] {
        let path = long_file(folder.path(), name, seed, 4000);
        let len = path.metadata().unwrap().len();
        assert!(len > 3 << 20, "several blocks: {len}");
        let mut random = Random::new(seed);
        for round in 0..12 {
            let (simple, ahead) = (read(&path, false), read(&path, true));
            assert!(simple == ahead, "{name}, round {round}: {:?}, {:?}", simple.1, ahead.1);
            assert_eq!(simple.1.is_none(), round == 0, "{name}: {:?}", simple.1);
            let len = path.metadata().unwrap().len();
            // Also at the edge of a block.
            let cut = if round == 3 { len & !0x7ffff } else { len - random.below(400_000) as u64 };
            std::fs::File::options().write(true).open(&path).unwrap().set_len(cut).unwrap();
        }
    }
}

/// Records that were whole when they were read are not lost; the file ends where it ends.
#[test]
fn files_that_shrink_and_grow_while_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = long_file(folder.path(), "a.pcap", 3, 12_000);
    let bytes = std::fs::read(&path).unwrap();
    let (all, none) = read(&path, false);
    assert_eq!((all.len(), none), (12_000, None));
    for round in 0..20 {
        std::fs::write(&path, &bytes).unwrap();
        let mut random = Random::new(round);
        let mut source = FileSource::open(&path, FileOptions::default()).unwrap();
        let at = random.below(all.len());
        let mut read = 0;
        let error = loop {
            match source.next() {
                Ok(Next::Frames(batch, _)) => {
                    let same = batch.frames().iter().zip(&all[read..]);
                    let wrong = same.clone().position(|(frame, whole)| frame.data != whole.data);
                    // What is overwritten under the reader may be anything, but it is read as frames.
                    assert!(wrong.is_none(), "round {round}: frame {}", read + wrong.unwrap_or(0));
                    let before = read;
                    read += batch.len();
                    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
                    if before <= at && at < read {
                        match round % 2 {
                            0 => file.set_len(random.below(bytes.len()) as u64).unwrap(),
                            _ => file.write_all(&bytes[24..24 + (1 << 20)]).unwrap(),
                        }
                    }
                    if read >= all.len() {
                        break None;
                    }
                }
                Ok(Next::Idle) => {}
                Ok(Next::End) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        assert!(read > at, "round {round}: {read} frames, {error:?}");
        assert!(error.is_none_or(|text| text.contains("cut short")), "round {round}");
        assert!(round % 2 == 0 || read >= all.len(), "round {round}: a file that grows loses none");
    }
}

/// Frames of the merged files, by the index of their file in the frame's first byte.
fn merge(paths: &[&Path]) -> (Vec<Owned>, Option<String>) {
    let mut source = MergedFiles::open(paths, &FileOptions::default()).unwrap();
    let (frames, error) = drain(&mut source);
    assert_eq!(source.stats().delivered, frames.len() as u64);
    (frames, error.map(|error| error.to_string()))
}

#[test]
fn several_files_are_merged_by_time_and_keep_every_frame() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["a.pcap", "b.pcapng", "c.pcap", "d.pcapng", "e.pcap", "f.pcap"];
    let paths: Vec<_> =
        (10..).zip(names).map(|(seed, name)| long_file(folder.path(), name, seed, 700)).collect();
    let mut paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    for count in 1..=paths.len() {
        let (merged, error) = merge(&paths[..count]);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(merged.len(), 700 * count);
        let times: Vec<u64> = merged.iter().map(|frame| frame.timestamp_ns).collect();
        assert!(times.is_sorted(), "{count} files");
        let mut expected: Vec<Owned> =
            paths[..count].iter().flat_map(|p| read(p, false).0).collect();
        expected.sort_by_key(|frame| frame.timestamp_ns);
        let bytes =
            |frames: &[Owned]| frames.iter().map(|one| one.data.clone()).collect::<Vec<_>>();
        assert!(bytes(&merged) == bytes(&expected), "{count} files: every frame, in its place");
    }
    // A damaged file ends alone, and its error comes after all frames.
    let whole = merge(&paths).0.len();
    let file = std::fs::File::options().write(true).open(paths[1]).unwrap();
    file.set_len(file.metadata().unwrap().len() - 10).unwrap();
    let left = read(paths[1], false).0.len();
    let (merged, error) = merge(&paths);
    assert_eq!(merged.len(), whole - 700 + left);
    assert!(error.is_some_and(|text| text.contains("cut short")));
    // Equal times: the file that was named first.
    let same = [paths[0], paths[0]];
    let (twice, _) = merge(&same);
    assert!(twice.chunks(2).all(|pair| pair[0].data == pair[1].data));
    paths.resize(MAX_FILES + 1, paths[0]);
    let refused = MergedFiles::open(&paths, &FileOptions::default()).err().unwrap().to_string();
    assert!(refused.contains("from 1 to 1000"), "{refused}");
}
