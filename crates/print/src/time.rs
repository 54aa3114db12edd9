//! The time at the start of a line.

use crate::show::{Padded, Show};
use crate::{PrintOptions, TimeStyle};
use std::fmt::Write;

const NS_PER_S: u64 = 1_000_000_000;
const S_PER_DAY: i64 = 86_400;

/// The time from which differences count.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    reference_ns: Option<u64>,
    /// The last minute since 1970, and its offset from UTC.
    offset: Option<(i64, i32)>,
}

impl Clock {
    /// Prints the time of a frame and a space; nothing for [`TimeStyle::None`].
    pub(crate) fn print(&mut self, time_ns: u64, options: &PrintOptions, out: &mut String) {
        let seconds = (time_ns / NS_PER_S) as i64;
        let local = seconds + i64::from(self.offset_s(seconds, options));
        match options.time {
            TimeStyle::None => return,
            TimeStyle::Clock => time_of_day(local, out),
            TimeStyle::Date => {
                date(local.div_euclid(S_PER_DAY), out);
                out.push(' ');
                time_of_day(local, out);
            }
            TimeStyle::Epoch => {
                let _ = write!(out, "{seconds}");
            }
            TimeStyle::Delta | TimeStyle::SinceFirst => {
                return self.difference(time_ns, options, out);
            }
        }
        fraction(time_ns, options, out);
    }

    /// The offset of local time, which changes at whole minutes only.
    ///
    /// PERF: the C library needs 60 ns for it, a sixth of a line's cost.
    fn offset_s(&mut self, seconds: i64, options: &PrintOptions) -> i32 {
        let minute = seconds.div_euclid(60);
        match self.offset {
            Some((known, offset)) if known == minute => offset,
            _ => {
                let offset = (options.local_offset_s)(seconds);
                self.offset = Some((minute, offset));
                offset
            }
        }
    }

    fn difference(&mut self, time_ns: u64, options: &PrintOptions, out: &mut String) {
        let reference_ns = *self.reference_ns.get_or_insert(time_ns);
        out.push(if time_ns < reference_ns { '-' } else { ' ' });
        // Microseconds are subtracted as microseconds, so that the differences add up to the shown
        // times.
        let unit_ns = if options.nanoseconds { 1 } else { 1000 };
        let difference_ns = (time_ns / unit_ns).abs_diff(reference_ns / unit_ns) * unit_ns;
        time_of_day((difference_ns / NS_PER_S) as i64, out);
        fraction(difference_ns, options, out);
        if options.time == TimeStyle::Delta {
            self.reference_ns = Some(time_ns);
        }
    }
}

fn fraction(time_ns: u64, options: &PrintOptions, out: &mut String) {
    let ns = time_ns % NS_PER_S;
    out.push('.');
    match options.nanoseconds {
        true => Padded(ns as u32, 9).show(out),
        false => Padded((ns / 1000) as u32, 6).show(out),
    }
    out.push(' ');
}

fn time_of_day(seconds: i64, out: &mut String) {
    let second = seconds.rem_euclid(S_PER_DAY) as u32;
    Padded(second / 3600, 2).show(out);
    out.push(':');
    Padded(second / 60 % 60, 2).show(out);
    out.push(':');
    Padded(second % 60, 2).show(out);
}

/// Days since 1970 as a date of the Gregorian calendar. Counts years from March, so that the leap day is the last.
fn date(days: i64, out: &mut String) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let _ = write!(out, "{year:04}-{month:02}-{day:02}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(times_ns: &[u64], time: TimeStyle) -> Vec<String> {
        let options = PrintOptions { time, ..PrintOptions::default() };
        let mut clock = Clock::default();
        let show = |time_ns: &u64| {
            let mut out = String::new();
            clock.print(*time_ns, &options, &mut out);
            out
        };
        times_ns.iter().map(show).collect()
    }

    #[test]
    fn all_styles() {
        let times = [951_782_399_123_456_789, 951_782_400_123_457_000, 951_782_399_000_000_000];
        assert_eq!(shown(&times[..1], TimeStyle::Clock), ["23:59:59.123456 "]);
        assert_eq!(shown(&times[..1], TimeStyle::None), [""]);
        assert_eq!(shown(&times[..1], TimeStyle::Epoch), ["951782399.123456 "]);
        assert_eq!(
            shown(&times[..2], TimeStyle::Date),
            ["2000-02-28 23:59:59.123456 ", "2000-02-29 00:00:00.123457 "]
        );
        assert_eq!(
            shown(&times, TimeStyle::Delta),
            [" 00:00:00.000000 ", " 00:00:01.000001 ", "-00:00:01.123457 "]
        );
        assert_eq!(
            shown(&times, TimeStyle::SinceFirst),
            [" 00:00:00.000000 ", " 00:00:01.000001 ", "-00:00:00.123456 "]
        );
    }

    #[test]
    fn the_offset_changes_at_a_minute() {
        let summer_from_s = 1_600_000_020;
        let offset = |seconds| if seconds < 1_600_000_020 { 0 } else { 3600 };
        let options = PrintOptions { local_offset_s: offset, ..PrintOptions::default() };
        let mut clock = Clock::default();
        let mut shown = |seconds: u64| {
            let mut out = String::new();
            clock.print(seconds * NS_PER_S, &options, &mut out);
            out
        };
        assert_eq!(shown(summer_from_s - 1), "12:26:59.000000 ");
        assert_eq!(shown(summer_from_s), "13:27:00.000000 ");
        assert_eq!(shown(summer_from_s - 1), "12:26:59.000000 ");
    }

    #[test]
    fn dates_at_the_edges() {
        let shown = |days| {
            let mut out = String::new();
            date(days, &mut out);
            out
        };
        assert_eq!(shown(0), "1970-01-01");
        assert_eq!(shown(11_016), "2000-02-29");
        assert_eq!(shown(-1), "1969-12-31");
        assert_eq!(shown(47_482), "2100-01-01");
    }
}
