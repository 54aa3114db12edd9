//! Circles of imports: modules of a crate that use each other, directly or through others.
//!
//! Small circles are natural, such as two types that refer to each other. In a large one, no module can be read, tested
//! or moved alone. So no crate may have a circle of more than [`MAX_MODULES`] modules. Circles are searched twice:
//! among all files, and in each folder among its files and subfolders, each subfolder with everything below it. A
//! folder's own file and its parts may use each other, as may the crate's root and all modules. Test code does not
//! count. Cost: O(text).

mod imports;

use super::exceptions::{self, Knot};
use super::{Tree, Violation};
use imports::Modules;
use std::collections::{BTreeMap, BTreeSet};

/// Most modules of a circle.
pub const MAX_MODULES: usize = 3;

/// Pairs of modules, by number: the first uses the second.
type Edges = BTreeSet<(usize, usize)>;

/// A circle in a crate, with the names of its modules.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Circle {
    crate_name: String,
    /// The folder that contains them; `None` for a circle of files.
    folder: Option<String>,
    modules: Vec<String>,
}

impl Circle {
    fn describe(&self) -> String {
        let place = match &self.folder {
            Some(folder) if folder.is_empty() => "the rooms".to_owned(),
            Some(folder) => format!("the parts of {folder}"),
            None => "files".to_owned(),
        };
        format!("{} of {place}: {}", self.modules.len(), self.modules.join(", "))
    }
}

/// Refuses circles that are too large, except those in the list of exceptions.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = against(&circles(tree), exceptions::KNOTS);
    found.sort();
    found
}

/// The largest circle of each crate that has one, one line each.
pub fn report(tree: &Tree) -> Vec<String> {
    let mut largest: BTreeMap<&str, &Circle> = BTreeMap::new();
    let circles = circles(tree);
    for circle in &circles {
        let known = largest.entry(&circle.crate_name).or_insert(circle);
        if circle.modules.len() > known.modules.len() {
            *known = circle;
        }
    }
    let line = |(name, circle): (&str, &Circle)| format!("{name}: {}", circle.describe());
    largest.into_iter().map(line).collect()
}

fn against(circles: &[Circle], knots: &[Knot]) -> Vec<Violation> {
    let mut found = Vec::new();
    for circle in circles.iter().filter(|circle| circle.modules.len() > MAX_MODULES) {
        let knot = knots.iter().find(|knot| knot.crate_name == circle.crate_name);
        let limit = knot.map_or(MAX_MODULES, |knot| knot.max_modules);
        if circle.modules.len() > limit {
            let path = format!("crates/{}/src", circle.crate_name);
            let circle = circle.describe();
            let message = format!("a circle of {circle}; at most {limit} may use each other");
            found.push(Violation::new(&path, 0, message));
        }
    }
    for knot in knots {
        let own = circles.iter().filter(|circle| circle.crate_name == knot.crate_name);
        let largest = own.map(|circle| circle.modules.len()).max().unwrap_or(0);
        let path = format!("crates/{}/src", knot.crate_name);
        if largest < knot.max_modules || largest <= MAX_MODULES {
            let limit = knot.max_modules;
            let message = format!("listed with a circle of {limit}, its largest has {largest}");
            found.push(Violation::new(&path, 0, message));
        }
        if knot.reason.is_empty() {
            found.push(Violation::new(&path, 0, "listed with a circle without a reason"));
        }
    }
    found
}

/// All circles of all crates, those of files first.
fn circles(tree: &Tree) -> Vec<Circle> {
    let mut all = Vec::new();
    for name in tree.crates() {
        let modules = Modules::of(tree, name);
        let edges = modules.edges();
        let files = components(&edges).into_iter().map(|circle| Circle {
            crate_name: name.to_owned(),
            folder: None,
            modules: circle.into_iter().map(|module| modules.name(module)).collect(),
        });
        all.extend(files);
        for folder in modules.folders() {
            let (sides, edges) = side_by_side(&modules, &edges, &folder);
            all.extend(components(&edges).into_iter().map(|circle| Circle {
                crate_name: name.to_owned(),
                folder: Some(folder.join("::")),
                modules: circle.into_iter().map(|side| sides[side].clone()).collect(),
            }));
        }
    }
    all
}

/// The modules of a folder, each with everything below it, and the edges between them.
fn side_by_side(modules: &Modules, edges: &Edges, folder: &[String]) -> (Vec<String>, Edges) {
    let mut sides: Vec<String> = Vec::new();
    let mut side = |module: usize| {
        let below = modules.path(module).strip_prefix(folder)?;
        let name = below.first()?;
        Some(sides.iter().position(|known| known == name).unwrap_or_else(|| {
            sides.push(name.clone());
            sides.len() - 1
        }))
    };
    let mut between = Edges::new();
    for &(from, to) in edges {
        if let (Some(from), Some(to)) = (side(from), side(to))
            && from != to
        {
            between.insert((from, to));
        }
    }
    (sides, between)
}

/// The strongly connected components of more than one module, by Kosaraju's algorithm.
fn components(edges: &Edges) -> Vec<Vec<usize>> {
    let mut ahead: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut back: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &(from, to) in edges {
        ahead.entry(from).or_default().push(to);
        back.entry(to).or_default().push(from);
    }
    let mut seen = BTreeSet::new();
    let mut order = Vec::new();
    for &start in ahead.keys() {
        order.extend(finished(start, &ahead, &mut seen));
    }
    seen.clear();
    let mut found = Vec::new();
    for start in order.into_iter().rev() {
        let mut circle = finished(start, &back, &mut seen);
        if circle.len() > 1 {
            circle.sort_unstable();
            found.push(circle);
        }
    }
    found.sort();
    found
}

/// Unvisited modules that `start` reaches, in the order in which a depth-first search leaves them.
fn finished(
    start: usize,
    edges: &BTreeMap<usize, Vec<usize>>,
    seen: &mut BTreeSet<usize>,
) -> Vec<usize> {
    let mut done = Vec::new();
    let mut stack = vec![(start, false)];
    while let Some((at, left)) = stack.pop() {
        if left {
            done.push(at);
        } else if seen.insert(at) {
            stack.push((at, true));
            let next = edges.get(&at).into_iter().flatten();
            stack.extend(next.filter(|to| !seen.contains(to)).map(|&to| (to, false)));
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Modules in a row, each of which uses the next, and the last the first.
    fn ring(names: &[&str]) -> Vec<(String, String)> {
        let next = names.iter().cycle().skip(1);
        let file = |(name, next): (&&str, &&str)| {
            let text = format!("//! x\nuse crate::{}::*;\n", next.replace('/', "::"));
            (format!("crates/pass/src/{name}.rs"), text)
        };
        names.iter().zip(next).map(file).collect()
    }

    fn tree_of(files: &[(String, String)]) -> Tree {
        let files = files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        Tree::of(&files.collect::<Vec<_>>())
    }

    #[test]
    fn a_circle_of_four_modules_is_refused_and_names_them() {
        assert!(check_pass(&ring(&["first", "second", "third"])).is_empty());
        let found = check_pass(&ring(&["first", "second", "third", "fourth"]));
        assert_eq!(found.len(), 2, "as files and as rooms: {found:?}");
        for name in ["first", "second", "third", "fourth"] {
            assert!(found.iter().all(|message| message.contains(name)), "{found:?}");
        }
    }

    #[test]
    fn a_circle_inside_a_folder_counts_too() {
        let found = check_pass(&ring(&["room/first", "room/second", "room/third", "room/fourth"]));
        assert_eq!(found.len(), 2, "as files and as parts of the room: {found:?}");
        assert!(found.iter().all(|message| message.contains("second")), "{found:?}");
    }

    #[test]
    fn rooms_that_use_each_other_are_a_circle_though_no_file_is_in_one() {
        let rooms = ["a", "b", "c", "d"];
        let files: Vec<(String, String)> = (0..4)
            .map(|at| {
                let next = rooms[(at + 1) % 4];
                let text = format!("//! x\nuse crate::{next}::low::Thing;\n");
                (format!("crates/pass/src/{}/high.rs", rooms[at]), text)
            })
            .collect();
        let low = rooms.map(|room| (format!("crates/pass/src/{room}/low.rs"), "//! x".to_owned()));
        let found = check_pass(&[files, low.to_vec()].concat());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("4 of the rooms: a, b, c, d"), "{found:?}");
    }

    #[test]
    fn a_knot_that_is_not_needed_or_has_no_reason_is_a_violation() {
        let circles = circles(&tree_of(&ring(&["a", "b", "c", "d"])));
        let knot = |max_modules, reason| Knot { crate_name: "pass", max_modules, reason };
        assert!(against(&circles, &[knot(4, "why")]).is_empty());
        assert_eq!(against(&circles, &[knot(5, "why")]).len(), 1);
        assert_eq!(against(&circles, &[knot(4, "")]).len(), 1);
        assert_eq!(against(&[], &[knot(4, "why")]).len(), 1);
    }

    #[test]
    fn the_report_names_the_largest_circle_of_a_crate() {
        let files = [ring(&["a", "b"]), ring(&["c", "d", "e"])].concat();
        assert_eq!(report(&tree_of(&files)), ["pass: 3 of files: c, d, e"]);
    }

    fn check_pass(files: &[(String, String)]) -> Vec<String> {
        let found = against(&circles(&tree_of(files)), &[]);
        found.iter().map(ToString::to_string).collect()
    }
}
