//! The parts of the tables alone: filter, tiers, footer.

use super::*;
use bloom_filter::BloomFilter;
use format::{FOOTER_BYTES, RunFooter};
use tiering::{MergeChoice, RunShape, TieringPolicy};

fn shapes(rows: &[u64]) -> Vec<RunShape> {
    rows.iter().map(|rows| RunShape { rows: *rows, max_stamp: i64::MAX }).collect()
}

#[test]
fn a_filter_lets_every_key_through_and_few_false_positives() {
    let mut filter = BloomFilter::with_room(20_000);
    (0..20_000).for_each(|n| filter.add(&KeyProbe::of(key(n))));
    assert!((0..20_000).all(|n| filter.may_hold(&KeyProbe::of(key(n)))));
    let false_positives = (20_000..120_000).filter(|n| filter.may_hold(&KeyProbe::of(key(*n)))).count();
    assert!(false_positives < 1000, "{false_positives} of 100000");
}

#[test]
fn a_filter_shrunk_to_the_keys_that_came_is_as_good_as_one_made_for_them() {
    let mut filter = BloomFilter::with_room(160_000);
    (0..20_000).for_each(|n| filter.add(&KeyProbe::of(key(n))));
    filter.shrink_to(20_000);
    assert!(filter.len() <= BloomFilter::with_room(20_000).len() * 2, "{} blocks", filter.len());
    assert!((0..20_000).all(|n| filter.may_hold(&KeyProbe::of(key(n)))));
    let false_positives = (20_000..120_000).filter(|n| filter.may_hold(&KeyProbe::of(key(*n)))).count();
    assert!(false_positives < 1000, "{false_positives} of 100000");
}

#[test]
fn a_filter_survives_its_bytes() {
    let mut filter = BloomFilter::with_room(500);
    (0..500).for_each(|n| filter.add(&KeyProbe::of(key(n))));
    let bytes: Vec<u8> = filter.bytes().flatten().collect();
    let back = BloomFilter::read(&mut &bytes[..], filter.len()).unwrap();
    assert!(back.bytes().eq(filter.bytes()));
}

#[test]
fn a_footer_survives_its_bytes_under_its_own_header_only() {
    let footer = RunFooter { rows: 1 << 40, max_stamp: -5, filter_blocks: 17, blocks_crc: 98, index_crc: 99 };
    let (bytes, crc) = footer.encode(1234);
    let bytes: [u8; FOOTER_BYTES as usize] = bytes.try_into().unwrap();
    assert_eq!(RunFooter::decode(&bytes, 1234), Some((footer, crc)));
    assert_eq!(RunFooter::decode(&bytes, 1235), None);
}

#[test]
fn runs_are_merged_when_their_tier_is_full() {
    const K: u64 = 1000;
    let check = |new: u64, runs: &[u64], merge: usize| {
        let choice = TieringPolicy::default().choose(new, &shapes(runs), 0);
        assert_eq!(choice, MergeChoice { merge, drop: 0 }, "{new} onto {runs:?}");
    };
    check(200 * K, &[], 0);
    check(200 * K, &[200 * K, 200 * K], 0);
    check(200 * K, &[200 * K, 200 * K, 200 * K], 3);
    check(200 * K, &[200 * K, 200 * K, 200 * K, 800 * K, 800 * K], 3);
    check(200 * K, &[200 * K, 200 * K, 200 * K, 800 * K, 800 * K, 800 * K, 9000 * K], 6);
    check(200 * K, &[800 * K, 800 * K, 800 * K], 0);
    check(9000 * K, &[K, K, K, 9000 * K], 4);
    check(0, &[K, K, K, K], 0);
}

#[test]
fn ten_million_rows_have_at_most_a_dozen_runs_and_are_written_a_few_times() {
    for step in [500, 10_000, 66_000, 250_000, 1_000_000] {
        let (mut runs, mut written, mut total) = (Vec::new(), 0, 0);
        while total < 10_000_000 {
            let merge = TieringPolicy::default().choose(step, &shapes(&runs), 0).merge;
            let rows = step + runs.drain(..merge).sum::<u64>();
            runs.insert(0, rows);
            written += rows;
            total += step;
            assert!(runs.len() <= 12, "{runs:?}");
        }
        // Tiny checkpoints rewrite the lowest tier repeatedly; that is a few MB each time.
        let times = if step < 66_000 { 100 } else { 4 };
        assert!(written <= times * total, "steps of {step}: {written} rows written for {total}");
    }
}

#[test]
fn a_crowd_of_runs_is_thinned_from_the_newest() {
    let policy = TieringPolicy { runs_max: 3, ..TieringPolicy::default() };
    let runs = shapes(&[1_000_000, 20_000_000, 400_000_000, 8_000_000_000]);
    assert_eq!(policy.choose(1, &runs, 0), MergeChoice { merge: 2, drop: 0 });
}

#[test]
fn only_the_oldest_runs_expire_and_only_when_all_of_each_has() {
    let runs = [50, 10, 30, 19, 5].map(|max_stamp| RunShape { rows: 1, max_stamp });
    let dropped = |expire_before| TieringPolicy::default().choose(0, &runs, expire_before).drop;
    assert_eq!([0, 5, 6, 19, 20, 30, 31, 50, 51].map(dropped), [0, 0, 1, 1, 2, 2, 4, 4, 5]);
}
