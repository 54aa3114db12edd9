//! The loader's side of the channel: a loop that reads one request and sends one answer.

use super::wire::{self, Answer, LONGEST_REQUEST, MAPS, Request, Wanted};
use super::{MAX_HELD, REST};
use crate::direct::Access;
use crate::layout::OP_ROWS;
use crate::snapshot::{OwnedMaps, Specialised};
use crate::specialise;
use fyke_pass::Instruction;
use fyke_pass::layout::OPCODE_MASK;
use fyke_privilege::sandbox::{self, Rules};
use fyke_privilege::user;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Most descriptors: maps, a program, the channel, and those that come with a message.
const DESCRIPTORS: u64 = (MAX_HELD * MAPS + 32) as u64;

/// The maps of a space, and how its programs read frames.
struct Space {
    maps: OwnedMaps,
    access: Access,
}

#[derive(Default)]
struct Serving {
    /// The maps of spaces by number; `None` after they were forgotten.
    held: Vec<Option<Space>>,
    sealed: bool,
    /// Earliest time of the next program.
    rests_until: Option<Instant>,
}

/// Serves requests until the other end is closed, or a seal finds nothing to do or fails.
pub(super) fn run(channel: OwnedFd) {
    let mut serving = Serving::default();
    let mut bytes = vec![0; LONGEST_REQUEST + 1];
    while let Ok((length @ 1.., fds)) = wire::receive(channel.as_fd(), &mut bytes) {
        let read = Request::from_bytes(&bytes[..length]);
        let sequence = read.as_ref().map_or(0, |(sequence, _)| *sequence);
        let is_seal = matches!(read, Some((_, Request::Seal)));
        let mut program = None;
        let answer = match read.map(|(_, request)| request) {
            Some(Request::Hold { processors, access }) => serving.hold(processors, access, fds),
            Some(Request::Seal) => serving.seal(),
            Some(Request::Specialise { number, count_rejected, short, passes }) => {
                let made = serving.specialise(number, count_rejected, short, passes);
                made.map(|made| {
                    let access = made.access();
                    program = Some(made);
                    Answer { access, ..Answer::done(number) }
                })
            }
            Some(Request::Forget { number }) => {
                serving.held.get_mut(number as usize).into_iter().for_each(|one| *one = None);
                Ok(Answer::done(number))
            }
            None => Err("this is no request".to_owned()),
        };
        let ends = is_seal && !matches!(&answer, Ok(answer) if answer.number > 0);
        let answer = answer.unwrap_or_else(Answer::refused).to_bytes(sequence);
        let program = program.as_ref().map(|made: &Specialised| made.program.as_fd());
        let sent = wire::send(channel.as_fd(), &answer, &Vec::from_iter(program));
        if sent.is_err() || ends {
            break;
        }
    }
}

impl Serving {
    fn hold(
        &mut self,
        processors: u32,
        access: Access,
        fds: Vec<OwnedFd>,
    ) -> Result<Answer, String> {
        if self.sealed {
            return Err("maps are taken before the seal only".to_owned());
        }
        let maps: Result<[OwnedFd; MAPS], _> = fds.try_into();
        let Ok([passes, rows, tallies, tiers]) = maps else {
            return Err(format!("a space has {MAPS} maps"));
        };
        if self.held.len() >= MAX_HELD {
            return Err(format!("the maps of {MAX_HELD} spaces are held already"));
        }
        let maps = OwnedMaps { passes, rows, tallies, processors, tiers };
        self.held.push(Some(Space { maps, access }));
        Ok(Answer::done(self.held.len() as u32 - 1))
    }

    /// Gives up all rights but that to load programs.
    fn seal(&mut self) -> Result<Answer, String> {
        if self.sealed {
            return Err("it is sealed already".to_owned());
        }
        self.sealed = true;
        let spaces = self.held.iter().flatten().count() as u32;
        if spaces == 0 {
            return Ok(Answer::done(0));
        }
        let limits = [
            (Resource::Nofile, DESCRIPTORS),
            (Resource::Nproc, 0),
            (Resource::Fsize, 0),
            (Resource::Core, 0),
        ];
        for (resource, limit) in limits {
            let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
            setrlimit(resource, limit).map_err(|error| error.to_string())?;
        }
        user::keep_loading_programs().map_err(|error| error.to_string())?;
        let rules = Rules { loads_programs: true, ..Rules::default() };
        sandbox::enter(rules).map_err(|error| error.to_string())?;
        Ok(Answer::done(spaces))
    }

    fn specialise(
        &mut self,
        number: u32,
        count_rejected: bool,
        short: (u32, u32),
        passes: Vec<Wanted>,
    ) -> Result<Specialised, String> {
        if !self.sealed {
            return Err("programs are loaded after the seal only".to_owned());
        }
        let space = self.held.get(number as usize).and_then(Option::as_ref);
        let space = space.ok_or("there are no such maps")?;
        let asked = passes.len();
        let covered: Option<Vec<_>> = passes.into_iter().map(Wanted::covered).collect();
        let covered = covered.ok_or("a counter is none")?;
        let mut instructions = covered.iter().flat_map(|pass| &pass.instructions);
        if !instructions.all(is_valid) {
            return Err("an instruction is none".to_owned());
        }
        let covered = specialise::choose(covered);
        if covered.len() != asked {
            return Err("no code is generated for one of the passes".to_owned());
        }
        if let Some(until) = self.rests_until {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
        let maps = space.maps.lend();
        let make = || Specialised::make(covered, maps, space.access, count_rejected, short);
        let made = catch_unwind(AssertUnwindSafe(make));
        self.rests_until = Some(Instant::now() + REST);
        made.map_err(|_| "the generator failed".to_owned())?.map_err(|error| error.to_string())
    }
}

/// True for what the generator may meet; rows have no opcode of their own.
fn is_valid(one: &Instruction) -> bool {
    one.command & OPCODE_MASK == OP_ROWS || one.validate().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{COUNTERS, PART_EITHER, PART_WIDE};
    use crate::passes::{Covered, KernelPassId};
    use crate::{OpenError, Options};
    use fyke_pass::{Opcode, primitive};
    use fyke_testkit::random::Random;
    use fyke_testkit::skip::unless_missing;

    /// A sealed loader with the maps of a space, without the process around it.
    fn serving() -> Option<(crate::Space, Serving)> {
        let space =
            unless_missing(crate::Space::open(Options::default()), OpenError::is_unavailable)?;
        let maps = space.snapshot().unwrap().maps;
        let held = vec![Some(Space { maps, access: Access::best() })];
        Some((space, Serving { held, sealed: true, rests_until: None }))
    }

    fn ask(
        serving: &mut Serving,
        number: u32,
        counter: u32,
        one: Instruction,
    ) -> Result<Specialised, String> {
        let covered = Covered { id: KernelPassId(1), version: 0, counter, instructions: vec![one] };
        let request = Request::specialise(number, true, (0, 0), &[covered]);
        let Request::Specialise { passes, .. } = request else { unreachable!() };
        // Tests ask often.
        serving.rests_until = None;
        serving.specialise(number, true, (0, 0), passes)
    }

    #[test]
    fn hostile_requests_are_refused() {
        let Some((space, mut serving)) = serving() else { return };
        let good = primitive::ether_ip();
        assert!(ask(&mut serving, 0, 9, good).is_ok());
        let no_opcode = Instruction { command: 0x7f, ..good };
        let too_many = Instruction { command: Opcode::DEq as u32 | 0xf << 8, ..good };
        let too_far = Instruction::new(Opcode::DEq, 200).with_operands(&[1]).unwrap();
        let mut far_rows = Instruction { command: OP_ROWS, ..Instruction::default() };
        far_rows.params[1] = 126 | PART_WIDE | PART_EITHER;
        let of_code = Instruction { command: crate::layout::OP_CODE, ..Instruction::default() };
        for one in [no_opcode, too_many, too_far, far_rows, of_code] {
            let refused = ask(&mut serving, 0, 9, one).unwrap_err();
            assert!(
                refused.contains("an instruction is none") || refused.contains("no code"),
                "{refused}"
            );
        }
        assert!(ask(&mut serving, 1, 9, good).unwrap_err().contains("no such maps"));
        assert!(
            ask(&mut serving, 0, COUNTERS as u32, good).unwrap_err().contains("a counter is none")
        );
        let fd = || space.snapshot().unwrap().maps.passes;
        let late = serving.hold(1, Access::Copied, vec![fd(), fd(), fd(), fd()]).unwrap_err();
        assert!(late.contains("before the seal only"), "{late}");
        let few = Serving::default().hold(1, Access::Copied, vec![fd()]).unwrap_err();
        assert!(few.contains("4 maps"), "{few}");
        assert!(serving.seal().unwrap_err().contains("sealed already"));
    }

    /// Instructions of random words are refused, or become programs that the kernel takes: the generator does not fail,
    /// and the verifier refuses none.
    #[test]
    fn random_instructions_are_refused_or_become_programs() {
        let Some((_space, mut serving)) = serving() else { return };
        let (mut random, mut programs) = (Random::new(11), 0);
        for _ in 0..3_000 {
            let mut one =
                Instruction { command: random.below(1 << 16) as u32, ..Instruction::default() };
            if random.below(4) == 0 {
                one.command = OP_ROWS;
            }
            one.command |= (random.below(140) as u32) << fyke_pass::layout::OFFSET_SHIFT;
            for word in &mut one.params {
                *word =
                    [0, 0, 14, 7, 0xffff, u32::MAX, random.below(1 << 21) as u32][random.below(7)];
            }
            match ask(&mut serving, 0, 9, one) {
                Ok(_) => programs += 1,
                Err(why) => assert!(
                    why.contains("an instruction is none") || why.contains("no code"),
                    "{one:?}: {why}"
                ),
            }
        }
        assert!(programs > 20, "{programs} programs");
    }
}
