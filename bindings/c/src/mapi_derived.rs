//! Functions of MAPI on the results of other functions, of this flow or of another one, and on times. Safe code only.
//!
//! | function | parameters | passes | result |
//! |---|---|---|---|
//! | `BINOP` | type, flow, function, flow, function | all | the sum or the difference of two results |
//! | `STATS` | flow, function, when | all | number, sums, least and greatest of a result |
//! | `DIST` | flow, function, from, to, interval | all | how often a result was in each interval |
//! | `STARTSTOP` | start, stop | packets between two times | times of the first and last packet |
//!
//! A result is read when a packet reaches the function. Cost for each packet: a few stores.
//!
//! DEPARTURE: MAPI's `STATS` with a period sets the other function's result to 0, this one uses the difference; MAPI's
//! `DIST` counts values below `from` in the first interval, this one apart.
//! Source: SCAMPI's MAPI, the library `stdflib`.

use crate::mapi_functions::Given;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The result of a function: words that the program reads at any time.
pub type Cells = Arc<[AtomicU64]>;

/// Types of `BINOP`.
const ADD: u64 = 0;
const SUBTRACT: u64 = 1;
/// Most intervals of a distribution.
const MAX_INTERVALS: u64 = 65_536;
/// Words of a distribution before its intervals.
const HEAD: usize = 6;

type Done<T> = Result<T, String>;

/// A function on results, or on times.
pub enum Derived {
    /// The sum of two results; the difference if true.
    Binary(bool, Cells, Cells),
    /// A result, and when it is taken.
    Stats(Cells, When),
    /// A result.
    Distribution(Cells),
    /// The limits, after the time of the first packet if they are relative.
    Between(Limit, Limit),
}

/// Times at which `STATS` takes a result.
pub enum When {
    /// With each packet, after this number of packets.
    Packets(u64),
    /// The increase within this number of nanoseconds; the time and the value at the last one.
    Period(u64, Option<(u64, u64)>),
}

/// A limit of `STARTSTOP`, in nanoseconds.
#[derive(Clone, Copy)]
pub enum Limit {
    /// After the first packet.
    Relative(u64),
    /// Since 1970.
    Absolute(u64),
}

/// Places, among the numbers, of a flow and a function with a result that is an operand: the place of the flow.
pub fn operands(name: &str) -> &'static [usize] {
    match name {
        "BINOP" => &[1, 3],
        "STATS" | "DIST" => &[0],
        _ => &[],
    }
}

/// A number, or a time in nanoseconds: digits, perhaps a fraction and a unit, such as `20`, `+1.5s`, `7ms`.
fn value(text: &str) -> Done<u64> {
    let wrong = || format!("{text:?} is not a number, or a time such as 1.5s, 20ms, 7us or 300ns");
    let plain = text.strip_prefix('+').unwrap_or(text);
    let end = plain.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(plain.len());
    let (digits, unit) = plain.split_at(end);
    let scale = match unit {
        "" if !digits.contains('.') => return digits.parse().map_err(|_| wrong()),
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(wrong()),
    };
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let nanoseconds = Duration::try_from_secs_f64(number * scale / 1e9).map_err(|_| wrong())?;
    u64::try_from(nanoseconds.as_nanos()).map_err(|_| wrong())
}

/// A time in UTC, such as `2026-11-28 05:30:00`, in nanoseconds since 1970.
fn absolute(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let marks = [(4, "-"), (7, "-"), (10, " "), (13, ":"), (16, ":")];
    let is_marked = marks.iter().all(|&(at, mark)| text.get(at..=at) == Some(mark));
    if text.len() != 19 || !is_marked || text.contains('+') {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_leap = |year: u64| {
        (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
    };
    let february = if is_leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = months.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    if year < 1970 || !(1..=*length).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let years: u64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let before: u64 = months.iter().take(month as usize - 1).sum();
    let seconds = (years + before + day - 1) * 86_400 + hour * 3600 + minute * 60 + second;
    seconds.checked_mul(1_000_000_000)
}

fn limit(text: &str) -> Done<Limit> {
    if text.starts_with('+') {
        return value(text).map(Limit::Relative);
    }
    absolute(text).map(Limit::Absolute).ok_or_else(|| {
        format!("STARTSTOP: {text:?} is not a time such as +1.5s or \"2026-11-28 05:30:00\" (UTC)")
    })
}

impl Limit {
    fn after(self, first: u64) -> u64 {
        match self {
            Limit::Relative(time) => first.saturating_add(time),
            Limit::Absolute(time) => time,
        }
    }
}

impl Derived {
    /// Makes a function, and its result; `None` if the name is another one.
    pub fn new(name: &str, given: &Given<'_>) -> Done<Option<(Derived, Cells)>> {
        let operand = |place: usize| {
            given.results.get(place).cloned().ok_or_else(|| format!("{name} needs a result"))
        };
        let made = match name {
            "BINOP" => {
                let kind = given.number(0);
                if kind != ADD && kind != SUBTRACT {
                    return Err(format!("BINOP has no type {}", kind.cast_signed()));
                }
                (Derived::Binary(kind == SUBTRACT, operand(0)?, operand(1)?), 1)
            }
            "STATS" => {
                let when = match value(given.text(name, 0)?)? {
                    skipped @ 0..=1 => When::Packets(skipped),
                    period => When::Period(period, None),
                };
                (Derived::Stats(operand(0)?, when), 5)
            }
            "DIST" => return Derived::distribution(operand(0)?, given).map(Some),
            "STARTSTOP" => {
                let (start, stop) = (given.text(name, 0)?, given.text(name, 1)?);
                if start.starts_with('+') && !stop.starts_with('+') {
                    return Err("STARTSTOP: a stop for a start after the first packet is \
                                relative, too"
                        .to_owned());
                }
                let (start, stop) = (limit(start)?, limit(stop)?);
                let stop = match (start, stop) {
                    // MAPI counts it from the start.
                    (Limit::Relative(start), Limit::Relative(stop)) => {
                        Limit::Relative(start.saturating_add(stop))
                    }
                    (Limit::Absolute(start), Limit::Relative(stop)) => {
                        Limit::Absolute(start.saturating_add(stop))
                    }
                    (_, stop) => stop,
                };
                (Derived::Between(start, stop), 3)
            }
            _ => return Ok(None),
        };
        Ok(Some((made.0, cells(made.1))))
    }

    fn distribution(operand: Cells, given: &Given<'_>) -> Done<(Derived, Cells)> {
        let number = |place| value(given.text("DIST", place)?);
        let (from, to, interval) = (number(0)?, number(1)?, number(2)?);
        if from >= to || interval == 0 || interval > to - from {
            return Err(format!(
                "DIST: from {from} to {to} in intervals of {interval}: it needs from < to, and an interval that fits"
            ));
        }
        let count = (to - from).div_ceil(interval);
        if count > MAX_INTERVALS {
            return Err(format!("DIST: {count} intervals, and {MAX_INTERVALS} are possible"));
        }
        let made = cells(HEAD + count as usize);
        for (cell, number) in made.iter().zip([from, to, interval, count]) {
            cell.store(number, Ordering::Relaxed);
        }
        Ok((Derived::Distribution(operand), made))
    }

    /// Applies it to a packet of this time; false if that does not pass.
    pub fn apply(&mut self, time: u64, result: &Cells) -> bool {
        let read = |cells: &Cells| cells[0].load(Ordering::Relaxed);
        match self {
            Derived::Binary(is_difference, one, other) => {
                let (one, other) = (read(one), read(other));
                let sum = match is_difference {
                    true => one.wrapping_sub(other),
                    false => one.wrapping_add(other),
                };
                result[0].store(sum, Ordering::Relaxed);
            }
            Derived::Stats(operand, when) => {
                if let Some(taken) = when.take(time, read(operand)) {
                    add(result, taken);
                }
            }
            Derived::Distribution(operand) => {
                let cell = |place: usize| result[place].load(Ordering::Relaxed);
                let taken = read(operand);
                let place = match taken {
                    below if below < cell(0) => 4,
                    above if above >= cell(1) => 5,
                    _ => HEAD + ((taken - cell(0)) / cell(2)) as usize,
                };
                result[place].fetch_add(1, Ordering::Relaxed);
            }
            Derived::Between(start, stop) => {
                let known = result[0].load(Ordering::Relaxed);
                let first = if known == 0 { time } else { known };
                result[0].store(first, Ordering::Relaxed);
                if time < start.after(first) || time > stop.after(first) {
                    return false;
                }
                if result[1].load(Ordering::Relaxed) == 0 {
                    result[1].store(time, Ordering::Relaxed);
                }
                result[2].store(time, Ordering::Relaxed);
            }
        }
        true
    }
}

impl When {
    /// The value that counts at this time, if one does.
    fn take(&mut self, time: u64, value: u64) -> Option<u64> {
        match self {
            When::Packets(0) => Some(value),
            When::Packets(left) => {
                *left -= 1;
                None
            }
            When::Period(_, last @ None) => {
                *last = Some((time, value));
                None
            }
            When::Period(period, Some((since, before))) => {
                if time.saturating_sub(*since) < *period {
                    return None;
                }
                let increase = value.wrapping_sub(*before);
                (*since, *before) = (*since + *period, value);
                Some(increase)
            }
        }
    }
}

/// Adds a value to statistics: number, sum and sum of squares (both as `double`), least, greatest.
fn add(result: &Cells, value: u64) {
    let count = result[0].load(Ordering::Relaxed);
    let double = |cell: &AtomicU64, more: f64| {
        let sum = f64::from_bits(cell.load(Ordering::Relaxed)) + more;
        cell.store(sum.to_bits(), Ordering::Relaxed);
    };
    double(&result[1], value as f64);
    double(&result[2], value as f64 * value as f64);
    let least = if count == 0 { value } else { value.min(result[3].load(Ordering::Relaxed)) };
    result[3].store(least, Ordering::Relaxed);
    result[4].fetch_max(value, Ordering::Relaxed);
    result[0].store(count + 1, Ordering::Relaxed);
}

/// A result of this number of words, all 0.
pub fn cells(count: usize) -> Cells {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_times_are_read() {
        let good = [("20", 20), ("+1.5s", 1_500_000_000), ("7ms", 7_000_000), ("3us", 3_000)];
        assert!(good.iter().all(|(text, number)| value(text) == Ok(*number)));
        for wrong in ["", "s", "1.5", "1h", "-3", "1.2.3s", "+", "99999999999999999999"] {
            assert!(value(wrong).is_err(), "{wrong}");
        }
        assert_eq!(absolute("1970-01-01 00:00:01"), Some(1_000_000_000));
        assert_eq!(absolute("2024-03-01 12:00:00"), Some(1_709_294_400_000_000_000));
        for wrong in
            ["2023-02-29 00:00:00", "2024-13-01 00:00:00", "2024-01-01", "1969-01-01 00:00:00"]
        {
            assert_eq!(absolute(wrong), None, "{wrong}");
        }
    }
}
