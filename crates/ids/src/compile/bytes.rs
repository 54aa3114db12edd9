//! `byte_test`, `byte_jump`, `byte_extract`, `byte_math`, `base64_decode` and `base64_data`.

use super::number::{number, within};
use super::{Builder, Dialect};
use crate::read::RawOption;
use crate::rule::{
    ByteExtract, ByteJump, ByteMath, ByteTest, Comparison, JumpFrom, Read, Test, Value,
};

/// Most variables of a rule.
const MAX_VARIABLES: usize = 16;
/// Most bytes of a binary number, and of one in digits.
const MAX_BINARY: i64 = 8;
const MAX_DIGITS: i64 = 23;

impl Builder {
    /// Reads an option of this file; false if it is none.
    pub(super) fn byte_option(&mut self, option: &RawOption) -> Result<bool, String> {
        let name = &*option.name;
        if !matches!(
            name,
            "byte_test"
                | "byte_jump"
                | "byte_extract"
                | "byte_math"
                | "base64_decode"
                | "base64_data"
        ) {
            return Ok(false);
        }
        let text = option.text()?;
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let test = match name {
            "byte_test" => Test::ByteTest(self.byte_test(&parts)?),
            "byte_jump" => Test::ByteJump(self.byte_jump(&parts)?),
            "byte_extract" => Test::ByteExtract(self.byte_extract(&parts)?),
            "byte_math" => Test::ByteMath(self.byte_math(&parts)?),
            "base64_decode" => base64(text)?,
            _ => {
                self.settle()?;
                let last = self.last_list.and_then(|list| {
                    Some((list, self.rule.lists.get(list)?.tests.len().checked_sub(1)?))
                });
                let last = last.filter(|(list, at)| {
                    matches!(self.rule.lists[*list].tests[*at], Test::Base64 { .. })
                });
                self.decoded = Some(last.ok_or("base64_decode must be just before it")?);
                return Ok(true);
            }
        };
        self.push(test)?;
        Ok(true)
    }

    /// A number, or a variable.
    fn value(&self, text: &str) -> Result<Value, String> {
        match self.names.iter().position(|name| name == text) {
            Some(at) => Ok(Value::Variable(at)),
            None => {
                number(text).map(Value::Number).map_err(|reason| format!("{reason} or variable"))
            }
        }
    }

    fn read(&self, len: &str, offset: &str) -> Result<Read, String> {
        Ok(Read {
            len: self.value(len)?,
            offset: self.place_of_number(offset)?,
            relative: false,
            little: false,
            text: None,
            mask: None,
        })
    }

    fn place_of_number(&self, text: &str) -> Result<Value, String> {
        match self.value(text)? {
            Value::Number(offset) if !(-65_535..=65_535).contains(&offset) => {
                Err(format!("{offset} is not within -65535 and 65535"))
            }
            value => Ok(value),
        }
    }

    fn byte_test(&self, parts: &[&str]) -> Result<ByteTest, String> {
        let [len, operator, value, offset, rest @ ..] = parts else {
            return Err("expected bytes, operator, value, offset".to_owned());
        };
        let (negated, sign) = match operator.strip_prefix('!') {
            Some(sign) => (true, sign.trim()),
            None => (false, *operator),
        };
        let comparison = match sign {
            "<" => Comparison::Less,
            "<=" => Comparison::AtMost,
            "=" | "" => Comparison::Equal,
            ">=" => Comparison::AtLeast,
            ">" => Comparison::Greater,
            "&" => Comparison::And,
            "^" => Comparison::Xor,
            other => return Err(format!("{other} is no operator")),
        };
        let mut read = self.read(len, offset)?;
        for part in rest {
            read_flag(&mut read, part)?;
        }
        // No bytes: as many as are digits.
        if read.text.is_none() || read.len != Value::Number(0) {
            check_len(&read)?;
        }
        Ok(ByteTest { read, comparison, negated, value: self.value(value)? })
    }

    fn byte_jump(&self, parts: &[&str]) -> Result<ByteJump, String> {
        let [len, offset, rest @ ..] = parts else {
            return Err("expected bytes, offset".to_owned());
        };
        let mut jump = ByteJump {
            read: self.read(len, offset)?,
            multiplier: 1,
            align: false,
            from: JumpFrom::Number,
            post_offset: Value::Number(0),
        };
        for part in rest {
            match part.split_once(char::is_whitespace) {
                Some(("multiplier", factor)) => jump.multiplier = within(factor, 1, 65_535)? as u32,
                Some(("post_offset", offset)) => {
                    jump.post_offset = self.place_of_number(offset.trim())?
                }
                _ => match *part {
                    "align" => jump.align = true,
                    "from_beginning" => jump.from = JumpFrom::Beginning,
                    "from_end" => jump.from = JumpFrom::End,
                    _ => read_flag(&mut jump.read, part)?,
                },
            }
        }
        // A jump by no bytes only moves by its offset.
        if jump.read.len != Value::Number(0) || self.dialect != Dialect::Suricata {
            check_len(&jump.read)?;
        }
        Ok(jump)
    }

    fn byte_extract(&mut self, parts: &[&str]) -> Result<ByteExtract, String> {
        let [len, offset, name, rest @ ..] = parts else {
            return Err("expected bytes, offset, name".to_owned());
        };
        let mut read = self.read(len, offset)?;
        let (mut multiplier, mut align) = (1, 1);
        for part in rest {
            match part.split_once(char::is_whitespace) {
                Some(("multiplier", factor)) => multiplier = within(factor, 1, 65_535)? as u32,
                Some(("align", to)) => {
                    align = within(to, 2, 4)? as u32;
                    if align == 3 {
                        return Err("align: expected 2 or 4".to_owned());
                    }
                }
                _ => read_flag(&mut read, part)?,
            }
        }
        check_len(&read)?;
        Ok(ByteExtract { read, multiplier, align, variable: self.variable(name)? })
    }

    fn byte_math(&mut self, parts: &[&str]) -> Result<ByteMath, String> {
        let (mut len, mut offset, mut operator, mut right, mut result) =
            (None, None, None, None, None);
        let mut flags = Vec::new();
        for part in parts {
            let Some((name, value)) = part.split_once(char::is_whitespace) else {
                flags.push(*part);
                continue;
            };
            let value = value.trim();
            match name {
                "bytes" => len = Some(value),
                "offset" => offset = Some(value),
                "oper" => operator = Some(value),
                "rvalue" => right = Some(value),
                "result" => result = Some(value),
                _ => flags.push(*part),
            }
        }
        let (Some(len), Some(offset), Some(operator), Some(right), Some(result)) =
            (len, offset, operator, right, result)
        else {
            return Err("expected bytes, offset, oper, rvalue and result".to_owned());
        };
        let operator = match operator {
            "+" | "-" | "*" | "/" => operator.as_bytes()[0],
            "<<" => b'<',
            ">>" => b'>',
            other => return Err(format!("{other} is no operator")),
        };
        let mut read = self.read(len, offset)?;
        for flag in flags {
            read_flag(&mut read, flag)?;
        }
        check_len(&read)?;
        let value = self.value(right)?;
        if operator == b'/' && value == Value::Number(0) {
            return Err("a division by 0".to_owned());
        }
        Ok(ByteMath { read, operator, value, variable: self.variable(result)? })
    }

    /// The variable of a name, a new one if there is none.
    fn variable(&mut self, name: &str) -> Result<usize, String> {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        if name.is_empty()
            || !name.chars().all(is_name)
            || name.starts_with(|letter: char| letter.is_ascii_digit())
        {
            return Err(format!("{name} is no name of a variable"));
        }
        if let Some(at) = self.names.iter().position(|own| own == name) {
            return Ok(at);
        }
        if self.names.len() == MAX_VARIABLES {
            return Err(format!("more than {MAX_VARIABLES} variables"));
        }
        self.names.push(name.to_owned());
        Ok(self.names.len() - 1)
    }
}

/// Reads a flag about the form of a number.
fn read_flag(read: &mut Read, part: &str) -> Result<(), String> {
    let (name, value) =
        part.split_once([' ', '\t']).map_or((part, ""), |(name, value)| (name, value.trim()));
    match (name, value) {
        ("relative", "") => read.relative = true,
        ("big", "") | ("endian", "big") => read.little = false,
        ("little", "") | ("endian", "little") => read.little = true,
        ("string", "") => read.text = Some(read.text.unwrap_or(10)),
        ("hex", "") | ("string", "hex") => read.text = Some(16),
        ("dec", "") | ("string", "dec") => read.text = Some(10),
        ("oct", "") | ("string", "oct") => read.text = Some(8),
        ("bitmask", mask) if !mask.is_empty() => {
            let mask = within(mask, 1, u32::MAX.into())?;
            read.mask = u32::try_from(mask).ok();
        }
        _ => return Err(format!("{part} is not judged")),
    }
    Ok(())
}

fn check_len(read: &Read) -> Result<(), String> {
    let most = if read.text.is_some() { MAX_DIGITS } else { MAX_BINARY };
    match read.len {
        Value::Number(len) if !(1..=most).contains(&len) => {
            Err(format!("{len} bytes: expected 1 to {most}"))
        }
        Value::Number(_) | Value::Variable(_) => Ok(()),
    }
}

fn base64(text: &str) -> Result<Test, String> {
    let (mut bytes, mut offset, mut relative) = (None, 0, false);
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once(char::is_whitespace) {
            Some(("bytes", count)) => bytes = Some(within(count, 1, 65_535)? as usize),
            Some(("offset", count)) => offset = within(count, 0, 65_535)? as usize,
            _ if part == "relative" => relative = true,
            _ => return Err(format!("{part} is not judged")),
        }
    }
    Ok(Test::Base64 { bytes, offset, relative, tests: Vec::new() })
}
