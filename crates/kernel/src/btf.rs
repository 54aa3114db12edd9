//! Reader of the kernel's type information (BTF): numbers of functions, offsets of structure members.
//!
//! [`crate::direct`] needs these numbers. They take one walk over the types of `/sys/kernel/btf/vmlinux` (5 MB, a few
//! milliseconds), once per process. If a byte does not fit the format, the walk ends there and keeps what it found.
//! Source: the kernel's `Documentation/bpf/btf.rst`. Linux 5.4.

const MAGIC: u16 = 0xeb9f;
const TYPE_BYTES: usize = 12;
const MEMBER_BYTES: usize = 12;
/// Kinds of types.
const INT: u32 = 1;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FUNCTION: u32 = 12;
const FUNCTION_PROTOTYPE: u32 = 13;
const VARIABLE: u32 = 14;
const SECTION: u32 = 15;
const DECLARATION_TAG: u32 = 17;
const ENUM64: u32 = 19;

/// The type information, as the kernel gives it.
#[derive(Debug)]
pub(crate) struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

/// Result of a search; `None` for each name that was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found<const FUNCTIONS: usize, const MEMBERS: usize> {
    /// Type numbers.
    pub functions: [Option<u32>; FUNCTIONS],
    /// Byte offsets.
    pub members: [Option<u32>; MEMBERS],
}

impl<'a> Btf<'a> {
    /// Returns `None` if the bytes are not BTF in this machine's byte order.
    pub fn new(bytes: &'a [u8]) -> Option<Btf<'a>> {
        if u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) != MAGIC {
            return None;
        }
        let header = word(bytes, 4)? as usize;
        let section = |place: usize| {
            let start = header.checked_add(word(bytes, place)? as usize)?;
            bytes.get(start..start.checked_add(word(bytes, place + 4)? as usize)?)
        };
        Some(Btf { types: section(8)?, strings: section(16)? })
    }

    /// Searches functions by name, and members of the structure `of`; bit fields are left out.
    pub fn find<const FUNCTIONS: usize, const MEMBERS: usize>(
        &self,
        functions: [&str; FUNCTIONS],
        of: &str,
        members: [&str; MEMBERS],
    ) -> Found<FUNCTIONS, MEMBERS> {
        let mut found = Found { functions: [None; FUNCTIONS], members: [None; MEMBERS] };
        let mut rest = self.types;
        for number in 1.. {
            let (Some(name), Some(info)) = (word(rest, 0), word(rest, 4)) else { break };
            let (kind, count) = (info >> 24 & 0x1f, info as usize & 0xffff);
            let Some(end) = extra(kind, count).and_then(|extra| rest.get(TYPE_BYTES..extra)) else {
                break;
            };
            if kind == FUNCTION {
                if let Some(place) = functions.iter().position(|other| self.is_named(name, other)) {
                    found.functions[place] = Some(number);
                }
            } else if kind == STRUCT && self.is_named(name, of) {
                for (place, member) in members.iter().enumerate() {
                    found.members[place] = self.member(end, info >> 31 == 1, member);
                }
            }
            rest = &rest[TYPE_BYTES + end.len()..];
        }
        found
    }

    fn member(&self, members: &[u8], sized: bool, name: &str) -> Option<u32> {
        let mut all = members.chunks_exact(MEMBER_BYTES);
        let member = all.find(|one| word(one, 0).is_some_and(|at| self.is_named(at, name)))?;
        let offset = word(member, 8)?;
        let (bits, width) = if sized { (offset & 0xff_ffff, offset >> 24) } else { (offset, 0) };
        (width == 0 && bits % 8 == 0).then_some(bits / 8)
    }

    fn is_named(&self, at: u32, name: &str) -> bool {
        let text = self.strings.get(at as usize..).unwrap_or_default();
        text.starts_with(name.as_bytes()) && text.get(name.len()) == Some(&0)
    }
}

/// Length of a type with `count` members; `None` for a kind that this code does not know.
fn extra(kind: u32, count: usize) -> Option<usize> {
    let extra = match kind {
        INT | VARIABLE | DECLARATION_TAG => 4,
        ARRAY => 12,
        STRUCT | UNION | SECTION | ENUM64 => 12 * count,
        ENUM | FUNCTION_PROTOTYPE => 8 * count,
        // Pointers, typedefs, qualifiers, forward declarations, functions, floats, type tags.
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    };
    Some(TYPE_BYTES + extra)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types: an integer, `struct sk_buff { int len; int data : 3; int tail; }`, a function `cast`.
    fn example() -> Vec<u8> {
        let strings = b"\0int\0sk_buff\0len\0data\0tail\0cast\0";
        let of = |name: &str| {
            let name = [name.as_bytes(), b"\0"].concat();
            strings.windows(name.len()).position(|part| part == name).unwrap() as u32
        };
        let sized = 1 << 31;
        let types: Vec<u32> = [
            vec![of("int"), INT << 24, 4, 32],
            vec![of("sk_buff"), STRUCT << 24 | sized | 3, 16],
            vec![of("len"), 1, 32, of("data"), 1, 3 << 24 | 64, of("tail"), 1, 96],
            vec![of("cast"), FUNCTION << 24, 0],
        ]
        .concat();
        let header = [24, 0, 4 * types.len() as u32, 4 * types.len() as u32, strings.len() as u32];
        let mut bytes = [MAGIC.to_ne_bytes(), [1, 0]].concat();
        bytes.extend(header.iter().chain(&types).flat_map(|word| word.to_ne_bytes()));
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn functions_and_members_are_found() {
        let bytes = example();
        let btf = Btf::new(&bytes).unwrap();
        let found = btf.find(["cast", "none"], "sk_buff", ["len", "tail", "data", "ta"]);
        assert_eq!(found.functions, [Some(3), None]);
        assert_eq!(found.members, [Some(4), Some(12), None, None], "a bit field has no place");
    }

    #[test]
    fn bytes_cut_anywhere_and_changed_anywhere_are_no_panic() {
        let bytes = example();
        for end in 0..bytes.len() {
            if let Some(btf) = Btf::new(&bytes[..end]) {
                let _any = btf.find(["cast"], "sk_buff", ["len"]);
            }
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[end] = value;
                if let Some(btf) = Btf::new(&changed) {
                    let _any = btf.find(["cast"], "sk_buff", ["len"]);
                }
            }
        }
    }
}
