//! An instant: RFC 3339 on the wire, always printed in UTC with milliseconds.

use crate::{Error, Kind};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// An instant. Two are equal when they are the same instant, however they were spelt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(jiff::Timestamp);

impl Timestamp {
    /// The instant this many milliseconds after 1970 began; clamped to what a calendar can show.
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        let fallback = if millis < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        Self(jiff::Timestamp::from_millisecond(millis).unwrap_or(fallback))
    }

    /// Milliseconds since 1970 began.
    #[must_use]
    pub fn millis(self) -> i64 {
        self.0.as_millisecond()
    }

    /// Nanoseconds since 1970 began: the instant exactly as it was sent.
    #[must_use]
    pub fn nanos(self) -> i128 {
        self.0.as_nanosecond()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.printed() {
            Some(text) => f.write_str(str_of(&text)),
            None => write!(f, "{:.3}", self.0),
        }
    }
}

impl Timestamp {
    /// Its text, where the year has four digits: every event carries two or three of them.
    fn printed(self) -> Option<[u8; 24]> {
        let at = jiff::tz::Offset::UTC.to_datetime(self.0);
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
        shaped.then(|| text.parse().ok()).flatten().map(Self).ok_or_else(|| {
            Error::new(Kind::Validation, "A time must be RFC 3339, for example 2025-12-03T12:01:59.829Z.")
        })
    }
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
            let time = Timestamp::from_millis(millis);
            assert_eq!(time.to_string(), format!("{:.3}", time.0));
            assert_eq!(serde_json::to_string(&time).unwrap(), format!("\"{:.3}\"", time.0));
        }
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
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }
}
