//! A duration in the form of ISO 8601: `PT30S`, `P30D`, `P1DT12H`, `P2W`.
//!
//! - A day is 24 hours. Months and years have no fixed length and are refused.
//! - Zero is valid; a negative duration and one beyond a hundred years are not.
//! - It is printed as it was sent and compared by its length: `PT24H` equals `P1D`.
//! - Days are also accepted after the `T` (`PT30D`).

use crate::{Error, Kind};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::time::Duration;

/// A duration. Two are equal if they are equally long, however they are spelt.
#[derive(Debug, Clone)]
pub struct IsoDuration {
    text: Box<str>,
    length: Duration,
}

impl IsoDuration {
    /// This many hours; clamped like [`IsoDuration::seconds`].
    #[must_use]
    pub fn hours(hours: i64) -> Self {
        let hours = u64::try_from(hours).unwrap_or(0).min(SECONDS_MAX / HOUR);
        Self { text: format!("PT{hours}H").into(), length: Duration::from_secs(hours * HOUR) }
    }

    /// This many seconds; a negative number counts as zero, one beyond a hundred years as a hundred years.
    #[must_use]
    pub fn seconds(seconds: i64) -> Self {
        let seconds = u64::try_from(seconds).unwrap_or(0).min(SECONDS_MAX);
        Self { text: format!("PT{seconds}S").into(), length: Duration::from_secs(seconds) }
    }

    /// The whole milliseconds in it.
    #[must_use]
    pub fn millis(&self) -> i64 {
        i64::try_from(self.length.as_millis()).unwrap_or(i64::MAX)
    }

    /// The text as it was sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The length, to the nanosecond.
    #[must_use]
    pub const fn std_duration(&self) -> Duration {
        self.length
    }
}

impl FromStr for IsoDuration {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let length = length_of(text).map_err(|reason| Error::new(Kind::Validation, reason))?;
        Ok(Self { text: text.into(), length })
    }
}

impl PartialEq for IsoDuration {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length
    }
}

impl Eq for IsoDuration {}

impl PartialOrd for IsoDuration {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for IsoDuration {
    fn cmp(&self, other: &Self) -> Ordering {
        self.length.cmp(&other.length)
    }
}

impl Hash for IsoDuration {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.length.hash(state);
    }
}

impl fmt::Display for IsoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Serialize for IsoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for IsoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(|error: Error| de::Error::custom(error.detail()))
    }
}

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;
/// A hundred years with their leap days, in seconds.
const SECONDS_MAX: u64 = 36_525 * DAY;
/// More than any sensible spelling needs.
const TEXT_BYTES_MAX: usize = 64;

/// Why a text is not a duration. The submitted text is never part of the message.
type DurationFault = &'static str;

const NOT_A_DURATION: DurationFault =
    "A duration must be ISO 8601 in upper case, for example PT30S, PT24H, P30D or P1DT12H.";
const NO_FIXED_LENGTH: DurationFault = "Months and years have no fixed length; use days, for example P30D.";
const NEGATIVE: DurationFault = "A duration cannot be negative.";
const TOO_LONG: DurationFault = "A duration can be at most 36525 days (a hundred years).";

fn length_of(text: &str) -> Result<Duration, DurationFault> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(NOT_A_DURATION);
    }
    if text.starts_with("-P") || text.starts_with("P-") || text.starts_with("PT-") {
        return Err(NEGATIVE);
    }
    let parts = text.strip_prefix('P').ok_or(NOT_A_DURATION)?;
    let (date, time) = parts.split_once('T').map_or((parts, None), |(date, time)| (date, Some(time)));
    if time.map_or(date, |time| time).is_empty() {
        return Err(NOT_A_DURATION);
    }
    let mut sum = DurationSum::default();
    sum.add_all(date, date_unit)?;
    sum.add_all(time.unwrap_or_default(), time_unit)?;
    sum.finish()
}

/// The seconds in the unit of a letter before the `T`.
fn date_unit(designator: char) -> Result<u64, DurationFault> {
    match designator {
        'W' => Ok(WEEK),
        'D' => Ok(DAY),
        'M' | 'Y' => Err(NO_FIXED_LENGTH),
        _ => Err(NOT_A_DURATION),
    }
}

/// The seconds in the unit of a letter after the `T`.
fn time_unit(designator: char) -> Result<u64, DurationFault> {
    match designator {
        'D' => Ok(DAY),
        'H' => Ok(HOUR),
        'M' => Ok(MINUTE),
        'S' => Ok(1),
        _ => Err(NOT_A_DURATION),
    }
}

/// What has been read so far.
#[derive(Default)]
struct DurationSum {
    /// Wide enough for `TEXT_BYTES_MAX` digits' worth of `u64` times a week each.
    seconds: u128,
    nanos: u32,
    /// The last unit, which the next one must be smaller than.
    unit: Option<u64>,
}

impl DurationSum {
    fn add_all(
        &mut self,
        mut parts: &str,
        unit_of: fn(char) -> Result<u64, DurationFault>,
    ) -> Result<(), DurationFault> {
        while let Some(at) = parts.find(|c: char| c != '.' && !c.is_ascii_digit()) {
            let (number, rest) = parts.split_at(at);
            let mut rest = rest.chars();
            let unit = unit_of(rest.next().unwrap_or_default())?;
            self.add(number, unit)?;
            parts = rest.as_str();
        }
        if parts.is_empty() { Ok(()) } else { Err(NOT_A_DURATION) }
    }

    fn add(&mut self, number: &str, unit: u64) -> Result<(), DurationFault> {
        if self.unit.is_some_and(|last| last <= unit) {
            return Err(NOT_A_DURATION);
        }
        self.unit = Some(unit);
        let (whole, fraction) = number.split_once('.').map_or((number, None), |(whole, part)| (whole, Some(part)));
        if let Some(fraction) = fraction {
            self.nanos = nanos_of(fraction).filter(|_| unit == 1).ok_or(NOT_A_DURATION)?;
        }
        if whole.is_empty() {
            return Err(NOT_A_DURATION);
        }
        let whole = whole.parse::<u64>().map_err(|_| TOO_LONG)?;
        self.seconds += u128::from(whole) * u128::from(unit);
        Ok(())
    }

    fn finish(self) -> Result<Duration, DurationFault> {
        let most = Duration::from_secs(SECONDS_MAX);
        let seconds = u64::try_from(self.seconds).map_err(|_| TOO_LONG)?;
        Some(Duration::new(seconds, self.nanos)).filter(|length| *length <= most).ok_or(TOO_LONG)
    }
}

/// The nanoseconds in the digits after the point: one to nine of them.
fn nanos_of(fraction: &str) -> Option<u32> {
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| (1..=9).contains(digits))?;
    let value = fraction.bytes().all(|byte| byte.is_ascii_digit()).then(|| fraction.parse::<u32>().ok())??;
    Some(value * 10_u32.pow(9 - digits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_span_has_a_length_and_keeps_its_text() {
        for (text, millis) in [
            ("PT30S", 30_000),
            ("PT0S", 0),
            ("P0D", 0),
            ("PT1.5S", 1500),
            ("PT0.0019S", 1),
            ("PT1H30M", 5_400_000),
            ("PT24H", 86_400_000),
            ("P1D", 86_400_000),
            ("P1DT12H", 129_600_000),
            ("P2W", 1_209_600_000),
            ("P1W1D", 691_200_000),
            ("P30D", 2_592_000_000),
            ("PT30D", 2_592_000_000),
            ("PT1D12H", 129_600_000),
            ("PT90M", 5_400_000),
            ("P36525D", 3_155_760_000_000),
        ] {
            let span: IsoDuration = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((span.millis(), span.as_str(), span.to_string().as_str()), (millis, text, text));
        }
    }

    #[test]
    fn what_is_no_span_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", NOT_A_DURATION),
            ("P", NOT_A_DURATION),
            ("PT", NOT_A_DURATION),
            ("P1DT", NOT_A_DURATION),
            ("30", NOT_A_DURATION),
            ("30 days", NOT_A_DURATION),
            ("pt30s", NOT_A_DURATION),
            ("PT30s", NOT_A_DURATION),
            ("P 30D", NOT_A_DURATION),
            ("P30D ", NOT_A_DURATION),
            ("P30", NOT_A_DURATION),
            ("PTS", NOT_A_DURATION),
            ("PT.5S", NOT_A_DURATION),
            ("PT5.S", NOT_A_DURATION),
            ("PT1.2.3S", NOT_A_DURATION),
            ("PT1,5S", NOT_A_DURATION),
            ("PT1.5H", NOT_A_DURATION),
            ("PT0.1234567890S", NOT_A_DURATION),
            ("PT+5S", NOT_A_DURATION),
            ("P30S", NOT_A_DURATION),
            ("PT1W", NOT_A_DURATION),
            ("PT1S1H", NOT_A_DURATION),
            ("PT1S1S", NOT_A_DURATION),
            ("P1DT1D", NOT_A_DURATION),
            ("PT1HT1M", NOT_A_DURATION),
            ("P١D", NOT_A_DURATION),
            ("P1M", NO_FIXED_LENGTH),
            ("P1Y2M", NO_FIXED_LENGTH),
            ("-PT5S", NEGATIVE),
            ("PT-5S", NEGATIVE),
            ("P36526D", TOO_LONG),
            ("P36525DT0.001S", TOO_LONG),
            ("PT99999999999999999999S", TOO_LONG),
            ("P18446744073709551615WT18446744073709551615H", TOO_LONG),
        ] {
            let error = text.parse::<IsoDuration>().expect_err(text);
            assert_eq!((error.kind(), error.detail()), (Kind::Validation, reason), "{text}");
            assert!(error.violations().is_empty());
        }
        assert!(format!("PT{}1S", "0".repeat(64)).parse::<IsoDuration>().is_err());
    }

    #[test]
    fn spans_are_equal_when_equally_long() {
        assert_eq!("PT24H".parse::<IsoDuration>().unwrap(), "P1D".parse().unwrap());
        assert_eq!(IsoDuration::hours(24), IsoDuration::seconds(86_400));
        assert!(IsoDuration::seconds(59) < "PT1M".parse().unwrap());
        assert_eq!((IsoDuration::hours(-1).as_str(), IsoDuration::seconds(-1).millis()), ("PT0H", 0));
        assert_eq!(IsoDuration::hours(i64::MAX), IsoDuration::seconds(i64::MAX));
        assert_eq!("PT0.5S".parse::<IsoDuration>().unwrap().std_duration(), Duration::from_millis(500));
    }

    #[test]
    fn a_span_travels_as_text() {
        let span: IsoDuration = serde_json::from_str(r#""PT30D""#).unwrap();
        assert_eq!(serde_json::to_string(&span).unwrap(), r#""PT30D""#);
        assert!(serde_json::from_str::<IsoDuration>(r#""P1Y""#).unwrap_err().to_string().starts_with(NO_FIXED_LENGTH));
    }

    proptest! {
        #[test]
        fn whatever_a_constructor_prints_is_read_back(seconds in any::<i64>()) {
            for span in [IsoDuration::seconds(seconds), IsoDuration::hours(seconds)] {
                prop_assert_eq!(&span.as_str().parse::<IsoDuration>().unwrap(), &span);
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "P?[-PT0-9.WDHMSY]{0,80}") {
            let _ = text.parse::<IsoDuration>();
        }
    }
}
