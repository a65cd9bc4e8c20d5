//! What a log that stands before another one, its field `log`, leaves to that: a test changes the one method it is about.

/// Reads what the log behind reads.
macro_rules! forward_read {
    () => {
        fn read(
            &self,
            range: log::Range,
            limit: log::Limit,
        ) -> contract::BoxFuture<'_, Result<Vec<log::Record>, log::LogError>> {
            self.log.read(range, limit)
        }
    };
}

/// All but appending and reading.
macro_rules! forward_rest {
    () => {
        fn tail(&self) -> tokio::sync::watch::Receiver<contract::Position> {
            self.log.tail()
        }

        fn find(&self, what: log::Find) -> contract::BoxFuture<'_, Result<Option<log::Header>, log::LogError>> {
            self.log.find(what)
        }

        fn segments(
            &self,
            topic: log::TopicNumber,
        ) -> contract::BoxFuture<'_, Result<Vec<contract::Segment>, log::LogError>> {
            self.log.segments(topic)
        }

        fn remove(
            &self,
            topic: log::TopicNumber,
            through: contract::Sequence,
        ) -> contract::BoxFuture<'_, Result<(), log::LogError>> {
            self.log.remove(topic, through)
        }
    };
}
