//! Translates any filter text to plain C, as a programmer would write it: one test after the other, left to right.
//!
//! Every load compares its end with the captured length and, if it is outside, rejects the frame by `return 0`
//! inside a statement expression, which gcc and clang support. The compiler removes comparisons that others imply.

use fyke_filter::{Node, Predicate};
use fyke_frame::Condition;
use fyke_frame::condition::{
    Address6, Base, Chain, Compare, Expr, Load, Operator, Relation, Source, Width,
};
use std::fmt::Write;

/// Maximum depth of a tree: compilers have a limit of nested brackets too.
const MAX_DEPTH: usize = 100;

const HEAD: &str = "\
#include <stdint.h>
#include <stddef.h>
typedef uint8_t u8; typedef uint32_t u32; typedef uint64_t u64;
typedef struct { const u8 *data; u32 len, wire_len; } frame;
#define NEED(end) if ((u64)(end) > len) return 0
#define L1(at) ({ u64 o = (at); NEED(o + 1); (u32)p[o]; })
#define L2(at) ({ u64 o = (at); NEED(o + 2); (u32)p[o] << 8 | p[o + 1]; })
#define L4(at) ({ u64 o = (at); NEED(o + 4); \
 (u32)p[o] << 24 | (u32)p[o + 1] << 16 | (u32)p[o + 2] << 8 | p[o + 3]; })
#define DIVIDE(a, op, b) ({ u32 x = (a), y = (b); if (!y) return 0; x op y; })
#define SHIFT(a, op, b) ({ u32 x = (a), y = (b); y > 31 ? 0 : x op y; })
static inline int judge(const u8 *p, u32 len, u32 wire_len) { return ";

const TAIL: &str = "; }
void plain(const frame *f, size_t n, u64 *out) {
 for (size_t i = 0; i < n; i += 64) {
  u64 w = 0; size_t end = n - i < 64 ? n - i : 64;
  for (size_t j = 0; j < end; j++)
   w |= (u64)(judge(f[i + j].data, f[i + j].len, f[i + j].wire_len) != 0) << j;
  out[i / 64] = w;
 }
}
";

/// Generates a source with one function, `plain`. `None` for a text that is nested too deeply.
pub fn source(predicate: &Predicate) -> Option<String> {
    if predicate.root().depth() > MAX_DEPTH {
        return None;
    }
    Some(format!("{HEAD}{}{TAIL}", node(predicate.root())))
}

fn joined(parts: impl Iterator<Item = String>, by: &str, empty: &str) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { empty.to_owned() } else { format!("({})", parts.join(by)) }
}

fn node(node_: &Node) -> String {
    match node_ {
        Node::All(nodes) => joined(nodes.iter().map(node), " && ", "1"),
        Node::Any(nodes) => joined(nodes.iter().map(node), " || ", "0"),
        Node::Not(inner) => format!("!{}", node(inner)),
        Node::Primitive(primitive) => condition(&primitive.condition),
        Node::Const(value) => u8::from(*value).to_string(),
    }
}

fn condition(one: &Condition) -> String {
    match one {
        Condition::Const(value) => u8::from(*value).to_string(),
        Condition::All(all) => joined(all.iter().map(condition), " && ", "1"),
        Condition::Any(any) => joined(any.iter().map(condition), " || ", "0"),
        Condition::Not(inner) => format!("!{}", condition(inner)),
        Condition::Load(test) => load(test),
        Condition::Address6(address) => address6(address),
        Condition::Chain(chain) => self::chain(chain),
        Condition::Relation(relation, left, right) => {
            let relation = match relation {
                Relation::Equal => "==",
                Relation::Greater => ">",
                Relation::GreaterOrEqual => ">=",
            };
            // Left before right, as both may reject the frame.
            format!("({{ u32 l = {}; u32 r = {}; l {relation} r; }})", value(left), value(right))
        }
    }
}

fn load(test: &Load) -> String {
    let (source, full) = match &test.source {
        Source::Bytes { base: place, offset, width } => {
            (format!("L{}({} + {offset}u)", *width as u32, base(place)), width.full_mask())
        }
        Source::WireLen => ("wire_len".to_owned(), u32::MAX),
        // These are unknown for frames of a file.
        Source::Meta(_) => ("0u".to_owned(), u32::MAX),
    };
    let masked = match test.mask & full == full {
        true => source,
        false => format!("({source} & {:#x}u)", test.mask),
    };
    match &test.compare {
        Compare::Equal(value) => format!("({masked} == {value:#x}u)"),
        Compare::Range(low, high) => {
            format!("({{ u32 v = {masked}; v >= {low}u && v <= {high}u; }})")
        }
        Compare::OneOf(values) => {
            let each = joined(values.iter().map(|value| format!("v == {value:#x}u")), " || ", "0");
            format!("({{ u32 v = {masked}; {each}; }})")
        }
    }
}

/// Generates the loop over extension headers; it stops after more steps than any valid frame has.
fn chain(chain: &Chain) -> String {
    let Chain { ip, v6, protocol } = *chain;
    let (first, start) = match v6 {
        true => (6, "40".to_owned()),
        false => (9, format!("4 * (L1({ip}u) & 15)")),
    };
    let extension = if v6 { "n == 0 || n == 43 || n == 44 || n == 60" } else { "0" };
    format!(
        "({{ u32 n = L1({ip}u + {first}u), x = {start}, steps = 0; \
         while (n != {protocol}u && n != 59 && steps++ < 65536) {{ u32 m; \
         if ({extension}) {{ m = L1((u64)x + {ip}u); x += 8 * (L1((u64)x + {ip}u + 1) + 1); }} \
         else if (n == 51) {{ m = L1((u64)x + {ip}u); x = 4 * (L1((u64)x + {ip}u + 1) + 2); }} \
         else break; n = m; }} n == {protocol}u; }})"
    )
}

fn base(place: &Base) -> String {
    match place {
        Base::Frame => "(u64)0".to_owned(),
        Base::IpHeaderEnd { ip } => format!("(u64)({ip}u + 4 * (L1({ip}u) & 15))"),
        Base::Computed(expr) => format!("(u64)({})", value(expr)),
    }
}

fn address6(address: &Address6) -> String {
    let mut text = String::from("(1");
    for word in 0..4 {
        let shift = 96 - 32 * word;
        let (mask, value) = ((address.mask >> shift) as u32, (address.value >> shift) as u32);
        if mask != 0 {
            let at = address.offset.saturating_add(4 * word);
            // A write to a string cannot fail.
            let _ = write!(text, " && (L4({at}u) & {mask:#x}u) == {:#x}u", value & mask);
        }
    }
    text.push(')');
    text
}

fn value(expr: &Expr) -> String {
    match expr {
        Expr::Const(value) => format!("{value}u"),
        Expr::WireLen => "wire_len".to_owned(),
        Expr::Meta(_) => "0u".to_owned(),
        Expr::IpHeaderLen { ip } => format!("(4 * (L1({ip}u) & 15))"),
        Expr::Load { index, offset, width } => {
            let width: Width = *width;
            format!("L{}((u64)({}) + {offset}u)", width as u32, value(index))
        }
        Expr::Negate(inner) => format!("(-({}))", value(inner)),
        Expr::Select(test, then, otherwise) => {
            format!("({} ? {} : {})", condition(test), value(then), value(otherwise))
        }
        Expr::Binary(operator, left, right) => {
            let (left, right) = (value(left), value(right));
            let plain = |by: &str| format!("({{ u32 l = {left}; u32 r = {right}; l {by} r; }})");
            match operator {
                Operator::Add => plain("+"),
                Operator::Sub => plain("-"),
                Operator::Mul => plain("*"),
                Operator::And => plain("&"),
                Operator::Or => plain("|"),
                Operator::Xor => plain("^"),
                Operator::Div => format!("DIVIDE({left}, /, {right})"),
                Operator::Mod => format!("DIVIDE({left}, %, {right})"),
                Operator::Shl => format!("SHIFT({left}, <<, {right})"),
                Operator::Shr => format!("SHIFT({left}, >>, {right})"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CompileError, Object};
    use super::source;
    use crate::bench::filters::{HOSTS_38, static_filters};
    use crate::bench::frames::{Arena, Load};
    use crate::bench::traffic::Traffic;

    #[test]
    fn compiled_c_gives_the_oracles_verdicts_for_frames_of_every_length() {
        let hand_written = match Object::static_filters() {
            Ok(object) => object,
            Err(CompileError::Start(error)) => return println!("skipped: no C compiler: {error}"),
            Err(error) => panic!("{error}"),
        };
        let (mut traffic, mut arena, mut frame) = (Traffic::new(9), Arena::default(), Vec::new());
        for index in 0..6_000 {
            traffic.next(&mut frame);
            // Some frames have a host or a port of the filters, and some are truncated.
            if index % 3 == 0 {
                frame[26..30].copy_from_slice(&HOSTS_38[index % 38]);
            }
            let len = if index % 2 == 0 { frame.len() } else { index % 90 };
            arena.push(&frame[..len.min(frame.len())], frame.len() as u32);
        }
        let load = Load::new(&arena, (0..arena.len() as u32).collect());
        let mut texts = static_filters();
        texts.push(("", "ip[ip[8] & 15 : 2] % ip[9] + (7 << ip[8]) > len - 7".to_owned()));
        texts.push((
            "",
            "not (vlan and ip6 host 2001:db8::1) and portrange 20-80 or len < 70".to_owned(),
        ));
        for (name, text) in texts {
            let predicate = fyke_filter::compile(&text, &Default::default()).unwrap();
            let generated = Object::compile(&source(&predicate).unwrap()).unwrap();
            let mut functions = vec![generated.function("plain").unwrap()];
            if let Some(number) = name.strip_prefix('F') {
                for form in ["plain", "prefetch", "branchfree"] {
                    functions.push(hand_written.function(&format!("{form}_{number}")).unwrap());
                }
            }
            for (form, function) in functions.iter().enumerate() {
                let mut verdicts = vec![0; load.len().div_ceil(64)];
                function.judge(load.descriptors(), load.len(), &mut verdicts);
                for index in 0..load.len() {
                    let frame = arena.frame(index);
                    let given = verdicts[index / 64] >> (index % 64) & 1 == 1;
                    let expected = predicate.accepts(&frame);
                    assert_eq!(given, expected, "{text}, form {form}, {:?}", frame.data);
                }
            }
        }
    }
}
