//! Name resolution, from [`Ast`] to [`Filter`]s: expands layouts, turns names into slots, applies constraints to
//! fields.

use crate::ast::{Ast, BitField, Kind, Layout, Name, Pattern};
use crate::byte_range::{big_endian, range};
use crate::byte_set::ByteSet;
use crate::error::{Error, Span, Text};
use crate::node::Node;
use crate::program::{Filter, Rule};
use std::collections::HashMap;

/// Maximum size of a rule's pattern, with repetitions expanded: automaton states before determinisation.
pub const MAX_RULE_COST: u64 = 4 << 20;
/// Maximum number of names of a rule.
const MAX_SLOTS: usize = 4096;
/// Maximum nesting of layouts.
const MAX_LAYOUT_DEPTH: usize = 32;
/// Maximum length of a variable part.
const MAX_VARIABLE: i64 = 65_535;

/// Resolves all filters.
pub fn resolve(texts: &[Text], ast: &Ast) -> Result<Vec<Filter>, Error> {
    let mut layouts: HashMap<&str, &Layout> = HashMap::new();
    for layout in &ast.layouts {
        if layouts.insert(&layout.name.text, layout).is_some() {
            let message = format!("layout \"{}\" is defined twice", layout.name.text);
            return Err(Error::new(texts, layout.name.span, message));
        }
    }
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (number, filter) in ast.filters.iter().enumerate() {
        if names.insert(&filter.name.text, number).is_some() {
            let message = format!("filter \"{}\" is defined twice", filter.name.text);
            return Err(Error::new(texts, filter.name.span, message));
        }
    }
    for layout in &ast.layouts {
        // A layout that is not used must be correct too.
        let mut resolver = Resolver::new(texts, &layouts);
        resolver.pattern(&layout.pattern, Scope::default(), &mut Vec::new())?;
    }
    let filter = |filter: &crate::ast::Filter| {
        let rules = filter.rules.iter().map(|rule| rule_of(texts, &layouts, &names, rule));
        Ok(Filter {
            name: filter.name.text.clone(),
            links: filter.links.iter().map(|link| link.text.clone()).collect(),
            rules: rules.collect::<Result<_, Error>>()?,
            span: filter.name.span,
        })
    };
    ast.filters.iter().map(filter).collect()
}

fn rule_of(
    texts: &[Text],
    layouts: &HashMap<&str, &Layout>,
    filters: &HashMap<&str, usize>,
    rule: &crate::ast::Rule,
) -> Result<Rule, Error> {
    let mut resolver = Resolver::new(texts, layouts);
    let pattern = resolver.pattern(&rule.pattern, Scope::root(), &mut Vec::new())?;
    let cost = pattern.cost();
    if cost > MAX_RULE_COST {
        let message = format!(
            "this pattern has {cost} positions with its counts expanded, over {MAX_RULE_COST}"
        );
        return Err(Error::new(texts, rule.pattern.span, message));
    }
    let names = Names { texts, slots: resolver.slots, bits: resolver.bits, filters };
    let (action, used) = names.action(&rule.action)?;
    let slots = names.slots.into_iter().map(|slot| slot.path).collect();
    Ok(Rule { pattern, slots, used, action, span: rule.span })
}

/// A named part of a pattern.
#[derive(Debug)]
pub struct Slot {
    /// Full name, such as `ih.src`.
    pub path: String,
    /// Its length, if it is constant.
    pub len: Option<u64>,
}

/// Location of a bit field.
#[derive(Debug, Clone, Copy)]
pub struct BitPlace {
    /// Slot of the bytes that contain it.
    pub slot: u32,
    /// First bit.
    pub first: u32,
    /// Number of bits.
    pub width: u32,
}

/// The names of a rule, for its right-hand side.
pub struct Names<'a> {
    /// Texts, for messages.
    pub texts: &'a [Text],
    /// All slots.
    pub slots: Vec<Slot>,
    /// Bit fields by their path.
    pub bits: HashMap<String, BitPlace>,
    /// Filters by name.
    pub filters: &'a HashMap<&'a str, usize>,
}

/// Context in which names of a pattern are defined.
#[derive(Debug, Clone, Copy, Default)]
struct Scope<'a> {
    /// Prefix of the names; none: names cannot be used from outside and get no slots.
    prefix: Option<&'a str>,
    depth: usize,
}

impl Scope<'_> {
    fn root() -> Self {
        Scope { prefix: Some(""), depth: 0 }
    }
}

/// A constraint `field=pattern` that is not yet applied to its field.
struct Constraint<'a> {
    name: &'a Name,
    pattern: &'a Pattern,
    used: bool,
}

struct Resolver<'a> {
    texts: &'a [Text],
    layouts: &'a HashMap<&'a str, &'a Layout>,
    slots: Vec<Slot>,
    bits: HashMap<String, BitPlace>,
}

/// A one-byte field (or bits of one byte) that a variable length can refer to.
struct LengthField {
    name: String,
    item: usize,
    shift: u32,
    width: u32,
}

impl<'a> Resolver<'a> {
    fn new(texts: &'a [Text], layouts: &'a HashMap<&'a str, &'a Layout>) -> Self {
        Resolver { texts, layouts, slots: Vec::new(), bits: HashMap::new() }
    }

    fn error(&self, span: Span, message: impl Into<String>) -> Error {
        Error::new(self.texts, span, message)
    }

    fn slot(&mut self, path: String, len: Option<u64>, span: Span) -> Result<u32, Error> {
        if self.slots.iter().any(|slot| slot.path == path) || self.bits.contains_key(&path) {
            return Err(self.error(span, format!("\"{path}\" is defined twice in this rule")));
        }
        if self.slots.len() == MAX_SLOTS {
            return Err(self.error(span, format!("more than {MAX_SLOTS} names in a rule")));
        }
        self.slots.push(Slot { path, len });
        Ok(u32::try_from(self.slots.len() - 1).unwrap_or(0))
    }

    fn pattern(
        &mut self,
        pattern: &Pattern,
        scope: Scope<'_>,
        constraints: &mut Vec<Constraint<'_>>,
    ) -> Result<Node, Error> {
        match &pattern.kind {
            Kind::Sets(sets) => Ok(Node::sets(sets.iter().copied())),
            Kind::Number(value) => Err(self
                .error(pattern.span, "a number needs a size here")
                .hint(format!("{value}~2 is {value} in two bytes"))),
            Kind::Range(_, _, None) => {
                Err(self.error(pattern.span, "a range needs a size here").hint("1..1023~2"))
            }
            Kind::Range(low, high, Some(size)) => {
                self.range(*low, *high, u64::from(*size), pattern.span)
            }
            Kind::Any { greedy } => Ok(Node::any(*greedy)),
            Kind::Sequence(items) => self.sequence(items, scope, constraints),
            Kind::Alternation(branches) => {
                let nodes = branches.iter().map(|branch| self.pattern(branch, scope, constraints));
                Ok(Node::Alternation(nodes.collect::<Result<_, _>>()?))
            }
            Kind::Repeat { pattern, min, max, greedy } => {
                let node = Box::new(self.pattern(pattern, scope, constraints)?);
                if max.is_none() && node.is_nullable() {
                    return Err(self
                        .error(
                            pattern.span,
                            "a pattern repeated without limit must match at least one byte",
                        )
                        .hint("give a limit as in {0,9}, or use a single *"));
                }
                Ok(Node::Repeat { node, min: *min, max: *max, greedy: *greedy })
            }
            Kind::Named(name, inner) => self.named(name, inner, scope, constraints),
            Kind::Layout(name) => self.layout(name, scope, constraints),
            Kind::With(inner, fields) => self.with(inner, fields, scope, constraints),
            Kind::Bits(fields) => self.bits(fields, pattern.span, scope, constraints),
            Kind::Bytes { field, .. } => Err(self.error(
                field.span,
                format!("\"{}\" is not an earlier one-byte field of the same layout", field.text),
            )),
        }
    }

    fn range(&self, low: u64, high: u64, size: u64, span: Span) -> Result<Node, Error> {
        let bytes =
            |value| big_endian(value, usize::try_from(size).unwrap_or(usize::MAX).min(65_535));
        match (bytes(low), bytes(high)) {
            (Some(low), Some(high)) => Ok(range(&low, &high)),
            _ => Err(self.error(span, format!("{high} does not fit into {size} bytes"))),
        }
    }

    fn layout(
        &mut self,
        name: &Name,
        scope: Scope<'_>,
        constraints: &mut Vec<Constraint<'_>>,
    ) -> Result<Node, Error> {
        let Some(layout) = self.layouts.get(name.text.as_str()) else {
            let error = self.error(name.span, format!("there is no layout \"{}\"", name.text));
            let known = self.layouts.keys().copied();
            return Err(match closest(&name.text, known) {
                Some(near) => error.hint(format!("did you mean \"{near}\"?")),
                None if self.layouts.is_empty() => error.hint("include \"layouts.rli\""),
                None => error,
            });
        };
        if scope.depth == MAX_LAYOUT_DEPTH {
            let message = format!("layouts are nested deeper than {MAX_LAYOUT_DEPTH}");
            return Err(self.error(name.span, message));
        }
        // In a rule, the fields of an unnamed layout cannot be referred to.
        let prefix = scope.prefix.filter(|prefix| !prefix.is_empty());
        let scope = Scope { prefix, depth: scope.depth + 1 };
        let pattern = &layout.pattern;
        self.pattern(pattern, scope, constraints)
    }

    fn with(
        &mut self,
        inner: &Pattern,
        fields: &[(Name, Pattern)],
        scope: Scope<'_>,
        constraints: &mut Vec<Constraint<'_>>,
    ) -> Result<Node, Error> {
        let given = constraints.len();
        let mut all: Vec<Constraint<'_>> = Vec::new();
        for constraint in constraints.iter() {
            all.push(Constraint { used: false, ..*constraint });
        }
        all.extend(fields.iter().map(|(name, pattern)| Constraint { name, pattern, used: false }));
        let node = self.pattern(inner, scope, &mut all)?;
        for (outer, inner) in constraints.iter_mut().zip(&all) {
            outer.used |= inner.used;
        }
        match all[given..].iter().find(|constraint| !constraint.used) {
            None => Ok(node),
            Some(unused) => {
                let message = format!("there is no field \"{}\" here", unused.name.text);
                let error = self.error(unused.name.span, message);
                let known = self.fields_of(inner);
                Err(match closest(&unused.name.text, known.iter().map(String::as_str)) {
                    Some(near) => error.hint(format!("did you mean \"{near}\"?")),
                    None => error.hint(format!("its fields are: {}", known.join(", "))),
                })
            }
        }
    }

    /// Names of the fields that a constraint could refer to.
    fn fields_of(&self, pattern: &Pattern) -> Vec<String> {
        match &pattern.kind {
            Kind::Sequence(items) | Kind::Alternation(items) => {
                items.iter().flat_map(|item| self.fields_of(item)).collect()
            }
            Kind::Named(name, _) => vec![name.text.clone()],
            Kind::Bits(fields) => fields.iter().map(|field| field.name.text.clone()).collect(),
            Kind::With(inner, _) => self.fields_of(inner),
            Kind::Layout(name) => self
                .layouts
                .get(name.text.as_str())
                .map_or(Vec::new(), |layout| self.fields_of(&layout.pattern)),
            _ => Vec::new(),
        }
    }

    fn named(
        &mut self,
        name: &Name,
        inner: &Pattern,
        scope: Scope<'_>,
        constraints: &mut Vec<Constraint<'_>>,
    ) -> Result<Node, Error> {
        let path = scope.prefix.map(|prefix| join(prefix, &name.text));
        let slot = match &path {
            Some(path) => Some(self.slot(path.clone(), None, name.span)?),
            None => None,
        };
        // Constraints apply to fields of this level, not to fields inside a field.
        let is_layout = matches!(inner.kind, Kind::Layout(_) | Kind::With(..));
        let inner_scope =
            Scope { prefix: if is_layout { path.as_deref() } else { scope.prefix }, ..scope };
        let mut node = self.pattern(inner, inner_scope, &mut Vec::new())?;
        for constraint in constraints.iter_mut().filter(|given| given.name.text == name.text) {
            constraint.used = true;
            node = self.narrow(node, constraint.pattern)?;
        }
        let Some(slot) = slot else { return Ok(node) };
        self.slots[slot as usize].len = node.fixed_len();
        Ok(Node::Capture(slot, Box::new(node)))
    }

    /// Intersects a field with a constraint.
    fn narrow(&mut self, node: Node, pattern: &Pattern) -> Result<Node, Error> {
        let len = node.fixed_len();
        let given = match (&pattern.kind, len) {
            (Kind::Number(value), Some(len)) => self.range(*value, *value, len, pattern.span)?,
            (Kind::Range(low, high, None), Some(len)) => {
                self.range(*low, *high, len, pattern.span)?
            }
            _ => self.pattern(pattern, Scope::default(), &mut Vec::new())?,
        };
        if let (Some(field), Some(given)) = (len, given.fixed_len()) {
            if field != given {
                let message = format!("the field has {field} bytes, but this pattern has {given}");
                return Err(self.error(pattern.span, message));
            }
        } else if len.is_some() {
            let message = format!(
                "the field has {} bytes, but this pattern can have other lengths",
                len.unwrap_or(0)
            );
            return Err(self.error(pattern.span, message));
        }
        let limit = crate::parse::MAX_COUNT as usize;
        let (Some(old), Some(new)) = (node.as_sets(limit), given.as_sets(limit)) else {
            // A constraint replaces the field's own pattern only if that accepts any bytes.
            let free =
                node.as_sets(limit).is_some_and(|sets| sets.iter().all(|set| *set == ByteSet::ALL));
            return match free || node.is_any() {
                true => Ok(given),
                false => Err(self.error(pattern.span, "this field is already constrained")),
            };
        };
        let both: Vec<ByteSet> = old.iter().zip(&new).map(|(old, new)| old.and(new)).collect();
        match both.iter().any(ByteSet::is_empty) {
            true => {
                Err(self
                    .error(pattern.span, "the field already has another value: this never matches"))
            }
            false => Ok(Node::sets(both)),
        }
    }

    fn bits(
        &mut self,
        fields: &[BitField],
        span: Span,
        scope: Scope<'_>,
        constraints: &mut [Constraint<'_>],
    ) -> Result<Node, Error> {
        let total: u32 = fields.iter().map(|field| field.width).sum();
        let len = total as usize / 8;
        let (mut mask, mut value) = (vec![0u8; len], vec![0u8; len]);
        let group = match scope.prefix {
            Some(prefix) => {
                let path = join(prefix, &format!("bits@{}.{}", span.file, span.start));
                Some(self.slot(path, Some(len as u64), span)?)
            }
            None => None,
        };
        let mut first = 0;
        for field in fields {
            let mut wanted = field.value;
            for constraint in
                constraints.iter_mut().filter(|given| given.name.text == field.name.text)
            {
                constraint.used = true;
                let Kind::Number(number) = constraint.pattern.kind else {
                    return Err(self
                        .error(constraint.pattern.span, "a bit field is constrained by a number"));
                };
                if field.width < 64 && number >> field.width != 0 {
                    let message = format!("{number} does not fit into {} bits", field.width);
                    return Err(self.error(constraint.pattern.span, message));
                }
                if wanted.is_some_and(|old| old != number) {
                    return Err(self.error(
                        constraint.pattern.span,
                        "these bits already have another value: this never matches",
                    ));
                }
                wanted = Some(number);
            }
            if let Some(wanted) = wanted {
                put_bits(&mut mask, first, field.width, u64::MAX);
                put_bits(&mut value, first, field.width, wanted);
            }
            if let (Some(prefix), Some(slot)) = (scope.prefix, group)
                && field.name.text != "_"
            {
                let path = join(prefix, &field.name.text);
                let place = BitPlace { slot, first, width: field.width };
                if self.bits.insert(path.clone(), place).is_some() {
                    return Err(self.error(field.name.span, format!("\"{path}\" is defined twice")));
                }
            }
            first += field.width;
        }
        let sets = mask.iter().zip(&value).map(|(mask, value)| ByteSet::masked(*mask, *value));
        let node = Node::sets(sets);
        Ok(match group {
            Some(slot) => Node::Capture(slot, Box::new(node)),
            None => node,
        })
    }

    fn sequence(
        &mut self,
        items: &[Pattern],
        scope: Scope<'_>,
        constraints: &mut Vec<Constraint<'_>>,
    ) -> Result<Node, Error> {
        let mut nodes: Vec<Node> = Vec::new();
        let mut lengths: Vec<LengthField> = Vec::new();
        for item in items {
            let (name, inner) = match &item.kind {
                Kind::Named(name, inner) => (Some(name), &**inner),
                _ => (None, item),
            };
            if let Kind::Bytes { field, .. } = &inner.kind {
                let found = lengths.iter().rev().find(|length| length.name == field.text);
                if let Some(found) = found {
                    let slot = match (name, scope.prefix) {
                        (Some(name), Some(prefix)) => {
                            Some(self.slot(join(prefix, &name.text), None, name.span)?)
                        }
                        _ => None,
                    };
                    let head = nodes.split_off(found.item);
                    nodes.push(self.variable(inner, found, head, slot)?);
                    lengths.clear();
                    continue;
                }
            }
            let node = self.pattern(item, scope, constraints)?;
            if node.fixed_len() == Some(1) {
                note_lengths(&mut lengths, item, nodes.len());
            }
            if node != Node::Empty {
                nodes.push(node);
            }
        }
        Ok(match nodes.len() {
            0 => Node::Empty,
            1 => nodes.remove(0),
            _ => Node::Sequence(nodes),
        })
    }

    fn variable(
        &self,
        pattern: &Pattern,
        length: &LengthField,
        head: Vec<Node>,
        slot: Option<u32>,
    ) -> Result<Node, Error> {
        let Kind::Bytes { factor, offset, max, .. } = &pattern.kind else { return Ok(Node::Empty) };
        if head.iter().any(|node| node.fixed_len().is_none()) {
            let message = "all fields between a length field and bytes(…) must have a fixed length";
            return Err(self.error(pattern.span, message));
        }
        let allowed =
            head.first().and_then(|node| node.as_sets(1)).and_then(|sets| sets.first().copied());
        let allowed = allowed.unwrap_or(ByteSet::ALL);
        let mut variants: Vec<(ByteSet, u32)> = Vec::new();
        for value in 0..1u32 << length.width {
            let len = i64::from(value) * i64::from(*factor) + offset;
            let within = len >= 0 && len <= max.map_or(MAX_VARIABLE, i64::from);
            let matching = |byte: &u8| {
                u32::from(*byte) >> length.shift & ((1 << length.width) - 1) == value
                    && allowed.contains(*byte)
            };
            let set: ByteSet = (0..=u8::MAX).filter(matching).collect();
            if within && !set.is_empty() {
                variants.push((set, u32::try_from(len).unwrap_or(0)));
            }
        }
        match variants.is_empty() {
            true => {
                Err(self.error(pattern.span, "every value of the field gives a negative length"))
            }
            false => Ok(Node::Variable { head, variants, slot }),
        }
    }
}

/// Records the fields of a one-byte item.
fn note_lengths(lengths: &mut Vec<LengthField>, item: &Pattern, at: usize) {
    match &item.kind {
        Kind::Named(name, _) => {
            lengths.push(LengthField { name: name.text.clone(), item: at, shift: 0, width: 8 });
        }
        Kind::Bits(fields) => {
            let mut shift = 8;
            for field in fields {
                shift -= field.width;
                let name = field.name.text.clone();
                lengths.push(LengthField { name, item: at, shift, width: field.width });
            }
        }
        _ => {}
    }
}

/// Writes the lowest `width` bits of `value` into `bytes` from bit `first` on.
pub fn put_bits(bytes: &mut [u8], first: u32, width: u32, value: u64) {
    for bit in 0..width {
        let at = (first + bit) as usize;
        let one = value >> (width - 1 - bit) & 1 == 1;
        if let Some(byte) = bytes.get_mut(at / 8) {
            let mask = 0x80 >> (at % 8);
            *byte = if one { *byte | mask } else { *byte & !mask };
        }
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// Returns the known word closest to a mistyped one, if there is a close one.
pub fn closest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |known: &str| {
        let known: Vec<char> = known.to_lowercase().chars().collect();
        let mut row: Vec<usize> = (0..=known.len()).collect();
        for (i, a) in given.to_lowercase().chars().enumerate() {
            let mut corner = row[0];
            row[0] = i + 1;
            for (j, b) in known.iter().enumerate() {
                let cost = (corner + usize::from(a != *b)).min(row[j] + 1).min(row[j + 1] + 1);
                corner = std::mem::replace(&mut row[j + 1], cost);
            }
        }
        row[known.len()]
    };
    let nearest = known.map(|word| (distance(word), word)).min()?;
    (nearest.0 <= 1 + given.len() / 4).then_some(nearest.1)
}
