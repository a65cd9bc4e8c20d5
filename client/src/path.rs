//! Identifiers in the paths of the HTTP API.

/// A path in which the colons in the identifier of a topic or an event type are encoded, since an unencoded last colon may
/// begin a custom method; `None` if nothing has to be encoded.
///
/// `path` is the path as it would be sent, and `pieces` are its pieces after `/v1/`. Only a POST to the resource itself has
/// a custom method, after the last colon.
pub(crate) fn encode_identifier(path: &str, pieces: &[&str], is_post: bool) -> Option<String> {
    let ["topics" | "event-types", piece, below @ ..] = pieces else { return None };
    let (id, verb) = match piece.rsplit_once(':')? {
        (id, verb) if is_post && below.is_empty() => (id, Some(verb)),
        _ => (*piece, None),
    };
    if !id.contains(':') {
        return None;
    }
    let encoded = id.replace(':', "%3A");
    let pieces = path.split('/').map(|written| match written == *piece {
        true => verb.map_or_else(|| encoded.clone(), |verb| format!("{encoded}:{verb}")),
        false => written.to_owned(),
    });
    Some(pieces.collect::<Vec<_>>().join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_colons_of_an_identifier_are_encoded_and_that_of_a_verb_is_not() {
        for (pieces, is_post, encoded) in [
            (&["topics", "shop:orders"][..], false, Some("/v1/topics/shop%3Aorders")),
            (&["topics", "shop:orders:trim"], true, Some("/v1/topics/shop%3Aorders:trim")),
            (&["topics", "shop:orders:trim"], false, Some("/v1/topics/shop%3Aorders%3Atrim")),
            (&["event-types", "a:b", "versions"], true, Some("/v1/event-types/a%3Ab/versions")),
            (&["topics", "shop.orders:trim"], true, None),
            (&["topics", "shop.orders"], false, None),
            (&["subscriptions", "mail:pause"], true, None),
            (&["topics", "gts.a.b.v1~"], false, None),
            (
                &["event-types", "a:b", "versions", "1.0:finalise"],
                true,
                Some("/v1/event-types/a%3Ab/versions/1.0:finalise"),
            ),
            (&["consumer-groups", "a:b"], false, None),
            (&["topics"], true, None),
        ] {
            let path = format!("/v1/{}", pieces.join("/"));
            assert_eq!(encode_identifier(&path, pieces, is_post).as_deref(), encoded, "{path}");
        }
    }
}
