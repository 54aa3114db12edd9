//! Recursive descent over the graph language: one function per precedence level.
//!
//! ```text
//! chain    = parallel { ( ">" | "->" | "-N->" ) parallel }
//! parallel = both { "|" both }
//! both     = unary { "&" unary }
//! unary    = "!" unary | "[" chain "]" | [ "{" tag "}" ] "(" [ class { "," parameter } ] ")"
//! ```

use super::lex::{Lexer, Token};
use super::{
    MAX_DEPTH, MAX_NODES, MAX_TAG, MAX_TEXT_BYTES, NodeText, ParameterText, Parsed, Span,
    TextError, Tree,
};

/// Parses a graph.
///
/// # Errors
/// With the position and the text that was expected there.
pub fn parse(text: &str) -> Result<Parsed, TextError> {
    if text.len() > MAX_TEXT_BYTES {
        let message = format!("the graph has {} bytes; {MAX_TEXT_BYTES} are allowed", text.len());
        return Err(TextError::new("", 0..0, message));
    }
    let lexer = Lexer { text, at: 0 };
    let mut parser = Parser { lexer, depth: 0, nodes: 0, mixed: false };
    let tree = parser.chain()?;
    let (token, span) = parser.lexer.peek()?;
    if token != Token::End {
        let error = parser.lexer.error(span, "the graph should end here");
        return Err(error.expected("`>`, `->`, `|`, `&` or the end"));
    }
    Ok(Parsed { tree, mixed: parser.mixed })
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    depth: usize,
    nodes: usize,
    mixed: bool,
}

impl Parser<'_> {
    fn chain(&mut self) -> Result<Tree, TextError> {
        let (mut tree, mut bare) = self.parallel()?;
        let mut edges = 0;
        while let (Token::Feeds(class), span) = self.lexer.peek()? {
            self.lexer.at = span.end;
            let (right, right_bare) = self.parallel()?;
            bare |= right_bare;
            edges += 1;
            tree = Tree::Chain(Box::new(tree), class, Box::new(right));
        }
        self.mixed |= bare && edges > 0;
        Ok(tree)
    }

    /// Returns the tree, and true if it is several parts without brackets around them.
    fn parallel(&mut self) -> Result<(Tree, bool), TextError> {
        let mut members = vec![self.both()?];
        while let (Token::Beside, span) = self.lexer.peek()? {
            self.lexer.at = span.end;
            members.push(self.both()?);
        }
        let bare = members.len() > 1;
        Ok((single(members, Tree::Parallel), bare))
    }

    fn both(&mut self) -> Result<Tree, TextError> {
        let mut members = vec![self.unary()?];
        while let (Token::Both, span) = self.lexer.peek()? {
            self.lexer.at = span.end;
            members.push(self.unary()?);
        }
        Ok(single(members, Tree::Both))
    }

    fn unary(&mut self) -> Result<Tree, TextError> {
        let (token, span) = self.lexer.peek()?;
        match token {
            Token::Open | Token::Tag => self.node(),
            Token::Group | Token::Not => {
                if self.depth == MAX_DEPTH {
                    let message = format!("groups are nested deeper than {MAX_DEPTH}");
                    return Err(self.lexer.error(span, message));
                }
                self.depth += 1;
                self.lexer.at = span.end;
                let tree = match token {
                    Token::Not => Tree::Not(Box::new(self.unary()?), span),
                    _ => self.group(span)?,
                };
                self.depth -= 1;
                Ok(tree)
            }
            _ => Err(self.lexer.error(span, "a node is missing here").expected("`(class)` or `[`")),
        }
    }

    fn group(&mut self, open: Span) -> Result<Tree, TextError> {
        let tree = self.chain()?;
        let (token, span) = self.lexer.peek()?;
        match token {
            Token::GroupEnd => self.lexer.at = span.end,
            Token::End => return Err(self.lexer.error(open, "this `[` is never closed")),
            _ => {
                let error = self.lexer.error(span, "the group should continue or end here");
                return Err(error.expected("`>`, `|`, `&` or `]`"));
            }
        }
        Ok(tree)
    }

    fn node(&mut self) -> Result<Tree, TextError> {
        self.lexer.skip();
        let start = self.lexer.at;
        let mut node = NodeText::default();
        if self.lexer.take('{') {
            let (tag, span) = self.lexer.value(&['}'])?;
            self.check_tag(&tag, span)?;
            node.tag = Some(tag);
            if !self.lexer.take('}') {
                return Err(self.lexer.error(start..start + 1, "this `{` is never closed"));
            }
        }
        let open = self.lexer.at;
        if !self.lexer.take('(') {
            let place = self.lexer.at..self.lexer.at + 1;
            return Err(self.lexer.error(place, "a tag names a node").expected("`(`"));
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            let message = format!("more than {MAX_NODES} nodes");
            return Err(self.lexer.error(start..open + 1, message));
        }
        (node.class, node.class_span) = self.lexer.value(&[',', ')', '='])?;
        if self.lexer.take('=') {
            let error = self.lexer.error(node.class_span, "the class comes first");
            return Err(error.expected("`(class, name=value)`"));
        }
        while self.lexer.take(',') {
            self.parameter(&mut node)?;
        }
        if !self.lexer.take(')') {
            return Err(self.lexer.error(open..open + 1, "this `(` is never closed"));
        }
        node.span = start..self.lexer.at;
        self.check(&node, open)?;
        Ok(Tree::Node(node))
    }

    fn check(&self, node: &NodeText, open: usize) -> Result<(), TextError> {
        if !node.class.is_empty() {
            return Ok(());
        }
        if !node.parameters.is_empty() {
            let error = self.lexer.error(open..node.span.end, "a node without a class");
            return Err(error.expected("the class first, `(class, name=value)`"));
        }
        if node.tag.is_none() {
            let error = self.lexer.error(node.span.clone(), "an empty node");
            return Err(error.expected("`(class)`, or `{tag}()` to refer to a node"));
        }
        Ok(())
    }

    /// Parses `name=value`, a value named by its position (expression, then memory size), or the bare word `export`.
    fn parameter(&mut self, node: &mut NodeText) -> Result<(), TextError> {
        let (first, first_span) = self.lexer.value(&[',', ')', '='])?;
        let named = self.lexer.take('=');
        let parameter = if named {
            if first.is_empty() {
                let error = self.lexer.error(first_span.start..first_span.start + 1, "no name");
                return Err(error.expected("`name=value`"));
            }
            let (value, value_span) = self.lexer.value(&[',', ')'])?;
            let name = first.to_lowercase();
            ParameterText { name, value, name_span: first_span, value_span }
        } else if ["export", "exported"].contains(&first.as_str()) {
            let value_span = first_span.clone();
            ParameterText { name: first, value: "y".into(), name_span: first_span, value_span }
        } else {
            // At most two parameters are named by their position.
            let positions = node.parameters.iter().filter(|p| p.name_span.is_empty()).count();
            let Some(name) = ["expression", "mbufsize"].get(positions) else {
                let error = self.lexer.error(first_span, "this is a third value without a name");
                return Err(error.expected("`(class, expression, mbufsize)` or `name=value`"));
            };
            let name_span = first_span.start..first_span.start;
            let value_span = first_span;
            ParameterText { name: (*name).to_owned(), value: first, name_span, value_span }
        };
        if parameter.name == "identifier" {
            self.check_tag(&parameter.value, parameter.value_span.clone())?;
            node.tag = Some(parameter.value);
        } else {
            node.parameters.push(parameter);
        }
        Ok(())
    }

    fn check_tag(&self, tag: &str, span: Span) -> Result<(), TextError> {
        let usable = |c: char| c.is_alphanumeric() || c == '_';
        if tag.is_empty() || tag.chars().count() > MAX_TAG || !tag.chars().all(usable) {
            let error = self.lexer.error(span, "not a tag");
            return Err(error.expected(format!("1 to {MAX_TAG} letters, digits or `_`")));
        }
        Ok(())
    }
}

/// Returns the only member itself, or all members combined.
fn single(mut members: Vec<Tree>, together: fn(Vec<Tree>) -> Tree) -> Tree {
    if members.len() > 1 {
        return together(members);
    }
    members.remove(0)
}
