//! An instant: RFC 3339 on the wire, always printed in UTC with milliseconds.

use crate::{Error, Kind};
use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::{Pieces, PiecesOffset};
use jiff::tz::Offset;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// An instant. Two are equal if they are the same instant, however they are spelt.
///
/// The calendar library's own timestamp ends 26 hours before the year 9999 does, so that every instant has a local time in
/// every zone. People write `9999-12-31T23:59:59Z` for "no end", so an instant is kept here as the distance from 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds since 1970 began, rounded down.
    seconds: i64,
    /// The rest of the second.
    nanos: u32,
}

const NANOS_PER_SECOND: i128 = 1_000_000_000;
const EPOCH: DateTime = jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0);

impl Timestamp {
    /// The last instant there is: one nanosecond before the year 10000 in UTC.
    pub const MAX: Self = Self { seconds: 253_402_300_799, nanos: 999_999_999 };
    /// The first instant there is: the beginning of the year -9999 in UTC.
    pub const MIN: Self = Self { seconds: -377_705_116_800, nanos: 0 };

    /// The instant this many milliseconds after 1970 began; clamped to what a calendar can show.
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        let nanos = u32::try_from(millis.rem_euclid(1000)).unwrap_or_default() * 1_000_000;
        Self { seconds: millis.div_euclid(1000), nanos }.clamp(Self::MIN, Self::MAX)
    }

    /// Milliseconds since 1970 began, rounded down.
    #[must_use]
    pub fn millis(self) -> i64 {
        self.seconds * 1000 + i64::from(self.nanos / 1_000_000)
    }

    /// Whole seconds since 1970 began, rounded down.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.seconds
    }

    /// The nanoseconds after its whole second.
    #[must_use]
    pub const fn subsecond_nanos(self) -> u32 {
        self.nanos
    }

    /// Nanoseconds since 1970 began: the instant exactly as it was sent.
    #[must_use]
    pub fn nanos(self) -> i128 {
        i128::from(self.seconds) * NANOS_PER_SECOND + i128::from(self.nanos)
    }

    /// The instant this many nanoseconds after 1970 began, if there is one.
    fn from_nanos(nanos: i128) -> Option<Self> {
        let seconds = i64::try_from(nanos.div_euclid(NANOS_PER_SECOND)).ok()?;
        let time = Self { seconds, nanos: u32::try_from(nanos.rem_euclid(NANOS_PER_SECOND)).ok()? };
        (Self::MIN..=Self::MAX).contains(&time).then_some(time)
    }

    /// Its date and time in UTC.
    fn civil(self) -> DateTime {
        let nanos = i32::try_from(self.nanos).unwrap_or_default();
        match jiff::Timestamp::new(self.seconds, nanos) {
            Ok(time) => Offset::UTC.to_datetime(time),
            // The last and the first hours of the calendar.
            Err(_) => EPOCH.saturating_add(SignedDuration::new(self.seconds, nanos)),
        }
    }

    /// Its text, where the year has four digits: every event carries two or three of them.
    fn printed(self) -> Option<[u8; 24]> {
        let at = self.civil();
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let parts = [
            (0..4, at.year()),
            (5..7, at.month().into()),
            (8..10, at.day().into()),
            (11..13, at.hour().into()),
            (14..16, at.minute().into()),
            (17..19, at.second().into()),
            (20..23, at.millisecond()),
        ];
        for (places, number) in parts {
            let mut rest = u16::try_from(number).ok()?;
            for place in text.get_mut(places)?.iter_mut().rev() {
                let [digit, _] = (rest % 10).to_le_bytes();
                (*place, rest) = (b'0' + digit, rest / 10);
            }
        }
        Some(text)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.printed() {
            Some(text) => f.write_str(str_of(&text)),
            None => write!(f, "{:.3}Z", self.civil()),
        }
    }
}

/// Digits and what stands between them are text.
fn str_of(text: &[u8]) -> &str {
    std::str::from_utf8(text).unwrap_or_default()
}

impl FromStr for Timestamp {
    type Err = Error;

    /// Parses strict RFC 3339: the calendar library alone would take a blank for `T`, or a zone name.
    fn from_str(text: &str) -> Result<Self, Error> {
        let bytes = text.as_bytes();
        let shaped = bytes.get(10).is_some_and(|byte| byte.eq_ignore_ascii_case(&b'T'))
            && bytes.len() <= 64
            && bytes.iter().all(|byte| byte.is_ascii_digit() || b"-+:.TtZz".contains(byte));
        shaped.then(|| parse(text)).flatten().ok_or_else(|| {
            Error::new(Kind::Validation, "A time must be RFC 3339, for example 2025-12-03T12:01:59.829Z.")
        })
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Timestamp::from_nanos(time.as_nanosecond());
    }
    // What the library's timestamp cannot hold, its calendar can.
    let pieces = Pieces::parse(text).ok()?;
    let offset = match pieces.offset()? {
        PiecesOffset::Zulu => Offset::UTC,
        numeric => numeric.to_numeric_offset(),
    };
    let local = pieces.date().to_datetime(pieces.time()?);
    let since_epoch = local.duration_since(EPOCH).as_nanos() - i128::from(offset.seconds()) * NANOS_PER_SECOND;
    Timestamp::from_nanos(since_epoch)
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.printed() {
            Some(text) => serializer.serialize_str(str_of(&text)),
            None => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(|error: Error| de::Error::custom(error.detail()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_utc_milliseconds() {
        for (text, printed) in [
            ("2025-12-03T12:01:59.829Z", "2025-12-03T12:01:59.829Z"),
            ("2025-12-03T12:01:59Z", "2025-12-03T12:01:59.000Z"),
            ("2025-12-03T14:01:59.829999+02:00", "2025-12-03T12:01:59.829Z"),
        ] {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn prints_what_the_calendar_prints() {
        // Steps that share no divisor with a day, a year or a leap cycle; from the year -9999 to 9999.
        let far =
            (jiff::Timestamp::MIN.as_millisecond()..jiff::Timestamp::MAX.as_millisecond()).step_by(7_777_777_777_777);
        let near = (-40_000_000_000..40_000_000_000).step_by(77_777_777);
        for millis in far.chain(near) {
            let (time, theirs) = (Timestamp::from_millis(millis), jiff::Timestamp::from_millisecond(millis).unwrap());
            assert_eq!(time.to_string(), format!("{theirs:.3}"));
            assert_eq!(serde_json::to_string(&time).unwrap(), format!("\"{theirs:.3}\""));
            assert_eq!(time.millis(), millis);
            assert_eq!(
                format!("{theirs}").parse::<Timestamp>().ok(),
                theirs.to_string().as_bytes()[10].eq(&b'T').then_some(time)
            );
        }
    }

    #[test]
    fn the_last_day_of_the_year_9999_is_a_time() {
        for (text, printed) in [
            ("9999-12-30T22:00:00Z", "9999-12-30T22:00:00.000Z"),
            ("9999-12-30T22:00:01Z", "9999-12-30T22:00:01.000Z"),
            ("9999-12-31T00:00:00Z", "9999-12-31T00:00:00.000Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000Z"),
            ("9999-12-31t23:59:59.999999999z", "9999-12-31T23:59:59.999Z"),
            ("9999-12-31T23:59:59.5+14:00", "9999-12-31T09:59:59.500Z"),
            ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000Z"),
        ] {
            let time = text.parse::<Timestamp>().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(time.to_string(), printed);
            assert_eq!(Timestamp::from_millis(time.millis()).to_string(), printed);
        }
        assert_eq!("9999-12-31T23:59:59.999999999Z".parse::<Timestamp>().unwrap(), Timestamp::MAX);
        assert_eq!(Timestamp::from_millis(i64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::from_millis(i64::MIN), Timestamp::MIN);
        assert_eq!(Timestamp::MIN.to_string(), "-009999-01-01T00:00:00.000Z");
        let before = "9999-12-30T21:59:59.999Z".parse::<Timestamp>().unwrap();
        assert!(before < "9999-12-30T22:00:00.000Z".parse().unwrap());
    }

    #[test]
    fn refuses_what_is_not_rfc_3339() {
        for text in [
            "",
            "now",
            "2025-12-03",
            "2025-12-03 12:01:59Z",
            "2025-12-03T12:01:59",
            "2025-12-03T12:01:59Z[UTC]",
            "2025-13-03T12:01:59Z",
            "9999-12-31T23:59:59",
            "9999-12-31T24:00:00Z",
            "9999-12-32T00:00:00Z",
            "9999-12-31T23:59:59-00:01",
            "10000-01-01T00:00:00Z",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }
}
