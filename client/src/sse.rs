//! A parser of server-sent events.

/// One message of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SseMessage {
    /// The sequence after which a new stream resumes.
    pub(crate) id: Option<u64>,
    /// The kind of message; empty for an event.
    pub(crate) event: String,
    /// The data; `None` if the message only moves the sequence.
    pub(crate) data: Option<String>,
}

/// The state of a stream.
#[derive(Debug, Default)]
pub(crate) struct SseParser {
    /// The bytes of an incomplete line.
    rest: Vec<u8>,
    message: SseMessage,
}

impl SseParser {
    /// Takes the next bytes; returns the messages that are complete now.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<SseMessage> {
        let mut messages = Vec::new();
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            self.rest.extend_from_slice(piece);
            if pieces.peek().is_none() {
                break;
            }
            let line = std::mem::take(&mut self.rest);
            let line = String::from_utf8_lossy(&line);
            messages.extend(self.line(line.trim_end_matches('\r')));
        }
        messages
    }

    /// Takes a line; an empty line ends a message.
    fn line(&mut self, line: &str) -> Option<SseMessage> {
        if line.is_empty() {
            let message = std::mem::take(&mut self.message);
            return (message != SseMessage::default()).then_some(message);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.message.id = value.parse().ok(),
            "event" => value.clone_into(&mut self.message.event),
            "data" => {
                let before = self.message.data.take().map(|before| before + "\n");
                self.message.data = Some(before.unwrap_or_default() + value);
            }
            // Comments begin with a colon; `retry` is not used.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_however_the_bytes_are_cut() {
        let text = ": from 0\nretry: 1000\n\nid: 1\ndata: {\"ü\":\ndata: 1}\n\n: idle\nid: 7\n\nevent: problem\r\ndata: x\r\n\r\n";
        let message = |id, event: &str, data: Option<&str>| SseMessage {
            id,
            event: event.to_owned(),
            data: data.map(str::to_owned),
        };
        let expected = [
            message(Some(1), "", Some("{\"ü\":\n1}")),
            message(Some(7), "", None),
            message(None, "problem", Some("x")),
        ];
        for size in 1..text.len() {
            let mut parser = SseParser::default();
            let found: Vec<_> = text.as_bytes().chunks(size).flat_map(|bytes| parser.feed(bytes)).collect();
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }
}
