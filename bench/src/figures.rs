//! Figures: medians and shares of samples, and how numbers are printed.

const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// The middle one.
pub(crate) fn median(samples: impl IntoIterator<Item = f64>) -> f64 {
    let mut samples: Vec<f64> = samples.into_iter().collect();
    samples.sort_unstable_by(f64::total_cmp);
    share(&samples, 0.5).copied().unwrap_or(f64::NAN)
}

/// The greatest one.
pub(crate) fn greatest(samples: impl IntoIterator<Item = f64>) -> f64 {
    samples.into_iter().fold(f64::NAN, f64::max)
}

/// The sample that `share` of the others are below; `samples` ascend.
pub(crate) fn share<T>(samples: &[T], share: f64) -> Option<&T> {
    let index = (samples.len() as f64 * share) as usize;
    samples.get(index.min(samples.len().saturating_sub(1)))
}

/// Nanoseconds at a share, in milliseconds.
pub(crate) fn millis_at(waits: &[u32], at: f64) -> f64 {
    share(waits, at).map_or(f64::NAN, |nanos| f64::from(*nanos) / 1e6)
}

/// `1 234 567`
pub(crate) fn whole(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// `12.3`, with more digits the smaller it is.
pub(crate) fn fine(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => whole(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// `1 poll`, `1 000 polls`
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", whole(count as f64), if count == 1 { "" } else { "s" })
}

/// `87 %`
pub(crate) fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// Bytes in MiB.
pub(crate) fn mebibytes(bytes: f64) -> String {
    fine(bytes / MEBIBYTE)
}

/// Bytes in GiB.
pub(crate) fn gibibytes(bytes: f64) -> String {
    fine(bytes / MEBIBYTE / 1024.0)
}

/// Bytes in KiB.
pub(crate) fn kibibytes(bytes: f64) -> String {
    fine(bytes / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_for_people() {
        assert_eq!(whole(1_234_567.4), "1 234 567");
        assert_eq!(whole(-12.0), "-12");
        assert_eq!(fine(2.34567), "2.35");
        assert_eq!(fine(1234.5), "1 234");
        assert_eq!(percent(0.874), "87 %");
        assert_eq!(counted(1, "poll"), "1 poll");
        assert_eq!(counted(1000, "poll"), "1 000 polls");
    }

    #[test]
    fn the_middle_of_samples() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(share(&[1, 2, 3, 4], 0.99), Some(&4));
        assert_eq!(share::<u8>(&[], 0.5), None);
    }
}
