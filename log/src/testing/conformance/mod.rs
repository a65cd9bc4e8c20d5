//! The contract of [`Log`](crate::Log) as tests, one function per promise, for any engine.
//!
//! [`conformance!`](crate::conformance) turns the list below into tests of one engine. A promise that is not in the list
//! is not tested, so a test of this module compares the list with the files.

mod append;
mod concurrency;
mod find;
mod range;
mod remove;
mod segments;

pub use append::*;
pub use concurrency::*;
pub use find::*;
pub use range::*;
pub use remove::*;
pub use segments::*;

/// Calls the macro named in brackets with `$engine` and the list of promises.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_promises {
    ([$($with:tt)*] $engine:expr) => {
        $($with)*! { $engine;
            an_empty_log_has_nothing_in_it
            what_was_appended_reads_back_the_same
            positions_stay_dense_over_batches_of_any_size
            an_append_behind_another_tail_is_told_the_tail
            a_misnumbered_batch_writes_nothing
            a_time_that_falls_is_refused
            a_time_that_stays_is_taken
            an_empty_batch_only_compares
            what_was_appended_survives_reopening
            three_topics_interleaved_stay_dense_in_all_numberings

            a_read_of_the_whole_log_starts_behind_any_position
            a_read_of_a_topic_starts_behind_any_sequence
            a_read_of_an_aggregate_starts_behind_any_number
            a_read_stops_at_its_most_records
            a_read_stops_at_its_most_bytes
            the_first_record_is_given_however_large
            limits_hold_in_topics_and_aggregates

            an_id_finds_its_record
            an_id_stored_twice_finds_the_first
            an_entry_has_no_id_to_be_found_by
            a_time_finds_the_first_record_at_or_after_it
            a_time_finds_the_first_record_of_a_topic
            an_aggregate_finds_its_last_record

            segments_hold_exactly_what_can_be_read
            segments_end_where_removal_and_begin_where_appending_continues

            a_trimmed_read_is_told_the_earliest
            the_rest_of_a_trimmed_topic_reads_from_just_before_it
            reads_of_log_and_aggregate_skip_holes
            a_hole_of_any_length_does_not_end_a_read
            removed_records_are_not_found
            an_id_whose_first_record_is_removed_finds_the_next
            removing_twice_or_less_does_nothing
            removing_past_the_end_leaves_what_comes_later
            removing_from_an_unknown_topic_does_nothing
            numbering_continues_after_everything_was_removed
            removal_leaves_other_topics_alone
            removal_survives_reopening
            time_does_not_fall_behind_what_was_removed

            the_tail_moves_only_when_records_become_readable
            the_tail_wakes_and_shows_only_what_can_be_read
            readers_see_a_batch_whole_or_not_at_all
            of_two_appends_behind_one_tail_one_wins
            appends_begun_behind_each_other_happen_in_order
            eight_writers_racing_leave_a_dense_log
            a_read_that_races_removal_is_whole_or_trimmed
        }
    };
}

/// Makes a test of every promise of [`Log`](crate::Log).
///
/// `log::conformance!(MemoryEngine::default());` in a test file is all it takes. The expression gives a new
/// [`Engine`](crate::testing::Engine) with an empty log for each test, and may await. The calling crate needs `tokio`
/// with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! conformance {
    ($engine:expr) => {
        $crate::conformance_promises! { [$crate::conformance_tests] $engine }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($engine:expr; $($promise:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                let kept = async {
                    let engine = $engine;
                    $crate::testing::conformance::$promise(&engine).await;
                };
                // A task among the tasks it starts, so that they meet wherever it waits.
                tokio::spawn($crate::testing::in_time(kept)).await.unwrap();
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    macro_rules! names {
        ($engine:expr; $($promise:ident)*) => { [$(stringify!($promise)),*] };
    }

    #[test]
    fn every_promise_is_in_the_list() {
        let listed = crate::conformance_promises! { [names] () };
        let files = [
            include_str!("append.rs"),
            include_str!("concurrency.rs"),
            include_str!("find.rs"),
            include_str!("range.rs"),
            include_str!("remove.rs"),
            include_str!("segments.rs"),
        ];
        let written = files.iter().flat_map(|file| file.lines().filter_map(|line| line.strip_prefix("pub async fn ")));
        let written: BTreeSet<_> = written.filter_map(|line| line.split('(').next()).collect();
        assert_eq!(BTreeSet::from(listed), written);
    }
}
