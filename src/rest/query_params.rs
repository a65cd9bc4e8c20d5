//! Query parameters: decoded once, looked up by name and parsed by type.
//!
//! - An unknown parameter is refused by name, and so is a second value of a parameter that has one: a typing error must not
//!   be taken for "no filter".
//! - The pointer of a refusal is `/` and the parameter's name.

use super::body;
use contract::{
    Cursor, Error, EventFilter, IdPattern, IdentifierProfile, Kind, Offset, Position, ReadOffset, Result, Timestamp,
    TopicId, Violation, under_profile,
};
use percent_encoding::percent_decode_str;
use std::str::FromStr;
use std::time::Duration;
use uuid::Uuid;

/// Parameters that filter events, besides `context.<key>`.
pub(crate) const FILTERS: [&str; 9] =
    ["type", "subjectType", "subject", "tenant", "source", "correlationId", "occurredFrom", "occurredTo", "filter"];
/// The prefix of parameters that filter events by a label: `context.appId=…`.
const CONTEXT_PREFIX: &str = "context.";
/// Largest number in a parameter: one that the integers of every client can hold.
const NUMBER_MAX: u64 = i64::MAX as u64;

/// A request's query, decoded.
#[derive(Debug, Default)]
pub(crate) struct QueryParams {
    pairs: Vec<(String, String)>,
    /// The profile of its identifiers.
    profile: IdentifierProfile,
}

impl QueryParams {
    /// The parameters of a query.
    pub(crate) fn parse(query: &str) -> Result<Self> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        pairs
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((decode(name)?, decode(value)?))
            })
            .collect::<Result<_>>()
            .map(|pairs| Self { pairs, profile: IdentifierProfile::default() })
    }

    /// The same, with identifiers of this profile.
    pub(crate) fn with_profile(self, profile: IdentifierProfile) -> Self {
        Self { profile, ..self }
    }

    /// All parameters.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Refuses parameters that are not among `known`.
    pub(crate) fn allow_only(&self, known: &[&str]) -> Result<&Self> {
        self.check(|name| known.contains(&name))
    }

    /// Refuses parameters that neither filter events nor are among `known`.
    pub(crate) fn allow_filters_and(&self, known: &[&str]) -> Result<&Self> {
        self.check(|name| known.contains(&name) || FILTERS.contains(&name) || name.starts_with(CONTEXT_PREFIX))
    }

    fn check(&self, known: impl Fn(&str) -> bool) -> Result<&Self> {
        let unknown = self.pairs.iter().filter(|(name, _)| !known(name));
        let violations: Vec<_> = unknown
            .map(|(name, _)| {
                Violation::new(format!("/{}", body::pointer_token(name)), "is not a parameter of this request")
            })
            .take(contract::limits::VIOLATIONS_MAX)
            .collect();
        if violations.is_empty() {
            return Ok(self);
        }
        Err(Error::new(Kind::Validation, "The query has unknown parameters; see `errors`.").with_violations(violations))
    }

    /// The values of a parameter that may be repeated.
    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter that occurs at most once.
    pub(crate) fn one<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>> {
        let mut values = self.all(name);
        let first = values.next();
        match values.next() {
            None => Ok(first),
            Some(_) => Err(Error::invalid(format!("/{name}"), "occurs more than once")),
        }
    }

    /// `true` or `false`; `false` without the parameter.
    pub(crate) fn flag(&self, name: &str) -> Result<bool> {
        match self.one(name)? {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Error::invalid(format!("/{name}"), "must be `true` or `false`")),
        }
    }

    /// A whole number, not negative.
    fn number(&self, name: &str) -> Result<Option<u64>> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten().filter(|number| *number <= NUMBER_MAX);
        number.map(Some).ok_or_else(|| Error::invalid(format!("/{name}"), "must be a whole number, 0 or more"))
    }

    /// `offset`, which every read of a topic needs: a number, or either end of the topic.
    pub(crate) fn read_offset(&self) -> Result<ReadOffset> {
        // A missing or repeated one is refused like the empty text.
        self.one("offset").ok().flatten().unwrap_or_default().parse()
    }

    /// `offset` of a read where it is optional.
    pub(crate) fn read_offset_if_any(&self) -> Result<Option<ReadOffset>> {
        if self.one("offset").is_ok_and(|offset| offset.is_none()) {
            return Ok(None);
        }
        self.read_offset().map(Some)
    }

    /// `offset` as a number.
    pub(crate) fn offset(&self) -> Result<Offset> {
        let number = self.number("offset").ok().flatten();
        number.map(Offset).ok_or_else(|| {
            let detail = "`offset` must be a whole number, 0 or more: the last sequence applied, 0 for none.";
            Error::new(Kind::InvalidOffset, detail)
        })
    }

    /// The last number seen of something that is not a topic.
    pub(crate) fn after(&self) -> Result<u64> {
        Ok(self.number("after")?.unwrap_or(0))
    }

    /// The last position seen; `None`: `after` is `latest`, the end of the log.
    pub(crate) fn position(&self) -> Result<Option<Position>> {
        match self.one("after")? {
            Some("latest") => Ok(None),
            Some("earliest") => Ok(Some(Position::ZERO)),
            _ => match self.number("after") {
                Ok(number) => Ok(Some(Position(number.unwrap_or(0)))),
                Err(_) => Err(Error::invalid("/after", "must be a whole number, 0 or more, or `earliest` or `latest`")),
            },
        }
    }

    /// `limit`, or the default.
    pub(crate) fn limit(&self, default: usize) -> Result<usize> {
        Ok(self.number("limit")?.map_or(default, |limit| usize::try_from(limit).unwrap_or(usize::MAX)))
    }

    /// `timeout` in whole seconds, or the default.
    pub(crate) fn timeout(&self, default: Duration) -> Result<Duration> {
        Ok(self.number("timeout")?.map_or(default, Duration::from_secs))
    }

    /// The cursor of the page.
    pub(crate) fn cursor(&self) -> Result<Option<Cursor>> {
        let text = self.one("cursor")?;
        text.map(|text| {
            let detail = "is not a cursor of this list; take next_cursor or prev_cursor from its last response";
            text.parse().map_err(|_| Error::invalid("/cursor", detail))
        })
        .transpose()
    }

    /// `topic`, exactly one.
    pub(crate) fn topic(&self) -> Result<TopicId> {
        let topic = self.one("topic")?.ok_or_else(|| Error::invalid("/topic", "is missing: name the topic"))?;
        self.parsed(topic)
    }

    /// A pattern, if there is one.
    pub(crate) fn pattern(&self, name: &str) -> Result<Option<IdPattern>> {
        self.identifier(name)
    }

    /// An identifier or a pattern, if there is one.
    pub(crate) fn identifier<T: FromStr<Err = Error>>(&self, name: &str) -> Result<Option<T>> {
        self.one(name)?.map(|text| self.parsed(text)).transpose()
    }

    fn parsed<T: FromStr<Err = Error>>(&self, text: &str) -> Result<T> {
        under_profile(self.profile, || text.parse())
    }

    /// The filter of a read.
    pub(crate) fn filter(&self) -> Result<EventFilter> {
        let tenants = self.all("tenant").map(|text| match Uuid::try_parse(text) {
            Ok(tenant) if tenant.is_nil() => Err(Error::invalid("/tenant", Violation::NIL_TENANT)),
            Ok(tenant) => Ok(tenant),
            Err(_) => Err(Error::invalid("/tenant", "must be a UUID")),
        });
        let labels = self.pairs.iter().filter_map(|(name, value)| {
            let key = name.strip_prefix(CONTEXT_PREFIX)?;
            Some((key.to_owned(), value.clone()))
        });
        Ok(EventFilter {
            types: self.all("type").map(|text| self.parsed(text)).collect::<Result<_>>()?,
            subject_types: self.all("subjectType").map(|text| self.parsed(text)).collect::<Result<_>>()?,
            subjects: self.all("subject").map(str::to_owned).collect(),
            tenants: tenants.collect::<Result<_>>()?,
            sources: self.all("source").map(str::to_owned).collect(),
            correlation_ids: self.all("correlationId").map(str::to_owned).collect(),
            context: labels.collect(),
            occurred_from: self.time("occurredFrom")?,
            occurred_to: self.time("occurredTo")?,
            cel: self.one("filter")?.map(str::to_owned),
        })
    }

    fn time(&self, name: &str) -> Result<Option<Timestamp>> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        // In a query a bare `+` means a blank, but `…T12:00:00+02:00` is often written without encoding it.
        let time = text.replace(' ', "+").parse();
        time.map(Some).map_err(|error: Error| Error::invalid(format!("/{name}"), error.detail()))
    }
}

fn decode(text: &str) -> Result<String> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(std::borrow::Cow::into_owned).map_err(|_| Error::new(Kind::Malformed, "The query is not UTF-8."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_by_name_and_type() {
        let params =
            QueryParams::parse("offset=7&limit=5&type=gts.a.b.c.v1~*&context.appId=x%20y&context.appId=z").unwrap();
        assert_eq!(params.read_offset().unwrap(), ReadOffset::Behind(Offset(7)));
        assert_eq!(params.limit(100).unwrap(), 5);
        let filter = params.filter().unwrap();
        assert_eq!(filter.types.len(), 1);
        assert_eq!(filter.context, [("appId".to_owned(), "x y".to_owned()), ("appId".to_owned(), "z".to_owned())]);
    }

    #[test]
    fn an_offset_is_a_whole_number_or_an_end_of_the_topic_and_nothing_else() {
        for (query, offset) in [("offset=earliest", ReadOffset::Earliest), ("offset=latest", ReadOffset::Latest)] {
            assert_eq!(QueryParams::parse(query).unwrap().read_offset().unwrap(), offset);
        }
        for query in
            ["", "offset=", "offset=-1", "offset=1.5", "offset=x", "offset=1&offset=2", "offset=9223372036854775808"]
        {
            let params = QueryParams::parse(query).unwrap();
            assert_eq!(params.read_offset().unwrap_err().kind(), Kind::InvalidOffset, "{query}");
            assert_eq!(params.offset().unwrap_err().kind(), Kind::InvalidOffset, "{query}");
        }
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused_by_name() {
        let params = QueryParams::parse("ofset=1&limit=1&limit=2&context.x=1").unwrap();
        let error = params.allow_filters_and(&["limit"]).unwrap_err();
        assert_eq!(
            error.violations().iter().map(|violation| violation.pointer.as_str()).collect::<Vec<_>>(),
            ["/ofset"]
        );
        assert_eq!(params.limit(100).unwrap_err().violations()[0].pointer, "/limit");
        assert_eq!(QueryParams::parse("a=%FF").unwrap_err().kind(), Kind::Malformed);
    }

    #[test]
    fn a_time_zone_survives_the_plus_sign() {
        for query in ["occurredFrom=2025-12-03T12:00:00+02:00", "occurredFrom=2025-12-03T12%3A00%3A00%2B02:00"] {
            let filter = QueryParams::parse(query).unwrap().filter().unwrap();
            assert_eq!(filter.occurred_from.unwrap().to_string(), "2025-12-03T10:00:00.000Z");
        }
    }
}
