//! Reading: offsets, limits, filters and long polls.

use crate::scenario::check;

const EVENTS: &str = r#"
        type placed                               -> created
        type shipped                              -> created
        publish placed a data={"n":1} source=web correlation=c1 context=app:x  -> created 1 aggregate 1
        publish shipped a data={"n":2} at=2025-01-01T00:00:00Z                 -> created 2 aggregate 2
        publish placed b data={"n":3} tenant=2 context=app:y context=env:prod  -> created 3 aggregate 1
        publish placed c of=parcel data={"m":4} at=2025-06-01T00:00:00Z        -> created 4 aggregate 1
"#;

fn with_events(text: &str) {
    check(&format!("{EVENTS}{text}"));
}

#[test]
fn reading_starts_behind_the_offset_and_stops_at_the_limit() {
    with_events(
        "
        read default                 -> 1 2 3 4 next 4 tail 4
        read default after=2         -> 3 4 next 4 tail 4
        read default limit=2         -> 1 2 next 2 tail 4
        read default after=4         -> next 4 tail 4
        read default after=99        -> next 99 tail 4
        read nowhere                 -> NOT_FOUND
        read default limit=0         -> VALIDATION_ERROR /limit
        read default limit=101       -> VALIDATION_ERROR /limit
        crash
        read default after=1 limit=2 -> 2 3 next 3 tail 4
    ",
    );
}

#[test]
fn reading_starts_at_either_end_of_what_is_there() {
    with_events(
        "
        topic empty                                  -> created
        read empty after=earliest                    -> next 0 tail 0
        read empty after=latest                      -> next 0 tail 0
        read default after=earliest                  -> 1 2 3 4 next 4 tail 4
        read default after=earliest limit=2          -> 1 2 next 2 tail 4
        read default after=latest                    -> next 4 tail 4
        read default after=latest wait=1             -> next 4 tail 4
        trim default 2                               -> removed 2
        read default                                 -> TRIMMED earliest 3
        read default after=2                         -> 3 4 next 4 tail 4
        read default after=earliest                  -> 3 4 next 4 tail 4
        read default after=earliest wait=1           -> 3 4 next 4 tail 4
        read default after=earliest limit=1          -> 3 next 3 tail 4
        read default after=earliest subject=b        -> 3 next 4 tail 4
        read default after=earliest subject=nobody   -> next 4 tail 4
        trim default 4                               -> removed 2
        read default after=earliest                  -> next 4 tail 4
        read default after=earliest wait=1           -> next 4 tail 4
        crash
        read default after=earliest                  -> next 4 tail 4
        publish placed z                             -> created 5 aggregate 1
        read default after=earliest                  -> 5 next 5 tail 5
        read default after=latest                    -> next 5 tail 5
        read nowhere after=earliest                  -> NOT_FOUND
    ",
    );
}

#[test]
fn filters_widen_within_a_member_and_narrow_across_members() {
    with_events(
        "
        read default type=gts.hyperspot.core.events.type.v1~vendor.app.placed.v1    -> 1 3 4 next 4 tail 4
        read default type=gts.hyperspot.core.events.type.v1~vendor.app.placed.v1~   -> 1 3 4 next 4 tail 4
        read default type=gts.hyperspot.core.events.type.v1~*                       -> 1 2 3 4 next 4 tail 4
        read default type=gts.other.*                                               -> next 4 tail 4
        read default type=hello                      -> INVALID_TYPE
        read default subject-type=gts.vendor.app.parcel.v1~ -> 4 next 4 tail 4
        read default subject=a subject=c             -> 1 2 4 next 4 tail 4
        read default subject=a source=web            -> 1 next 4 tail 4
        read default tenant=2                        -> 3 next 4 tail 4
        read default correlation=c1                  -> 1 next 4 tail 4
        read default context=app:x context=app:y     -> 1 3 next 4 tail 4
        read default context=app:x context=env:prod  -> next 4 tail 4
        read default from=2025-01-01T00:00:00Z to=2025-06-01T00:00:00Z -> 2 next 4 tail 4
        read default subject=a limit=1               -> 1 next 1 tail 4
    ",
    );
}

#[test]
fn cel_sees_the_events_members() {
    with_events(
        "
        read default cel=has(data) && data.n == 3    -> 3 next 4 tail 4
        read default cel=data.n > 1                  -> 2 3 next 4 tail 4
        read default cel=subject == 'a' && type.endsWith('placed.v1') -> 1 next 4 tail 4
        read default cel=has(correlationId)          -> 1 next 4 tail 4
        read default cel=data.n                      -> next 4 tail 4
        read default cel=data. ==                    -> VALIDATION_ERROR /filter
        read default cel=nonsense == 1               -> VALIDATION_ERROR /filter
        read default cel=launch(data)                -> VALIDATION_ERROR /filter
        read default cel=[1,2].all(a,[1,2].all(b,[1,2].all(c,[1,2].all(d,[1,2].all(e,true))))) -> VALIDATION_ERROR /filter
    ",
    );
}

#[test]
fn waiting_answers_at_once_with_what_is_there_and_empty_when_the_time_is_up() {
    with_events(
        "
        read default wait=30000             -> 1 2 3 4 next 4 tail 4
        read default wait=1 after=4         -> next 4 tail 4
        read default wait=1 tenant=9        -> next 4 tail 4
        read default wait=30001             -> VALIDATION_ERROR /timeout
        read nowhere wait=1                 -> NOT_FOUND
    ",
    );
}
