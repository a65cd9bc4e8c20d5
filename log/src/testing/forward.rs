//! Methods that a log forwards to another one, its field `log`: a test implements only the method it is about.

/// Appends to the wrapped log.
#[macro_export]
macro_rules! forward_append {
    () => {
        fn append(
            &self,
            after: contract::Position,
            batch: Vec<$crate::Record>,
        ) -> contract::BoxFuture<'_, Result<(), $crate::LogError>> {
            self.log.append(after, batch)
        }
    };
}

/// Reads from the wrapped log.
#[macro_export]
macro_rules! forward_read {
    () => {
        fn read(
            &self,
            range: $crate::ReadRange,
            limit: $crate::ReadLimit,
        ) -> contract::BoxFuture<'_, Result<Vec<$crate::Record>, $crate::LogError>> {
            self.log.read(range, limit)
        }
    };
}

/// All but appending and reading.
#[macro_export]
macro_rules! forward_rest {
    () => {
        fn tail(&self) -> tokio::sync::watch::Receiver<contract::Position> {
            self.log.tail()
        }

        fn find(
            &self,
            what: $crate::RecordQuery,
        ) -> contract::BoxFuture<'_, Result<Option<$crate::RecordHeader>, $crate::LogError>> {
            self.log.find(what)
        }

        fn segments(
            &self,
            topic: $crate::TopicNumber,
        ) -> contract::BoxFuture<'_, Result<Vec<contract::Segment>, $crate::LogError>> {
            self.log.segments(topic)
        }

        fn remove(
            &self,
            topic: $crate::TopicNumber,
            through: contract::Sequence,
        ) -> contract::BoxFuture<'_, Result<(), $crate::LogError>> {
            self.log.remove(topic, through)
        }
    };
}
