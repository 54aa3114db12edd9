//! Times as people write them (RFC 3339), read as frames have them: nanoseconds since 1970.

use toml::value::{Datetime, Offset};

const DAY_S: i64 = 86_400;

/// Days from 1970-01-01 to a day of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last of one.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The nanoseconds since 1970 of a time with a date and an offset from UTC.
pub(crate) fn nanoseconds(time: &Datetime) -> Result<u64, String> {
    let expected = "expected a date and time with an offset, such as 2026-12-01T00:00:00Z";
    let (Some(date), Some(clock), Some(offset)) = (time.date, time.time, time.offset) else {
        return Err(format!("{time}: {expected}"));
    };
    let minutes = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    let day = days(date.year.into(), date.month.into(), date.day.into());
    let second = i64::from(clock.second);
    let of_day = i64::from(clock.hour) * 3_600 + i64::from(clock.minute) * 60 + second;
    let seconds = day * DAY_S + of_day - minutes * 60;
    let seconds = u64::try_from(seconds).map_err(|_| format!("{time}: before 1970"))?;
    let whole = seconds.checked_mul(1_000_000_000);
    let time_ns = whole.and_then(|whole| whole.checked_add(clock.nanosecond.into()));
    time_ns.ok_or_else(|| format!("{time}: later than times of frames can be"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (written, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2026-12-01T00:30:00+01:00", 1_796_081_400),
        ] {
            let time: Datetime = written.parse().unwrap();
            assert_eq!(nanoseconds(&time), Ok(seconds * 1_000_000_000), "{written}");
        }
        for wrong in ["2026-12-01", "2026-12-01T00:00:00", "1969-12-31T00:00:00Z"] {
            assert!(nanoseconds(&wrong.parse().unwrap()).is_err(), "{wrong}");
        }
    }
}
