use std::error::Error;

/// Any error that can cross threads.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// An error and its causes on one line, outermost first. A cause that the text before it already
/// ends with is not repeated.
pub fn report(error: &(dyn Error + 'static)) -> String {
    let text = report_lines(error);
    if text.contains('\n') {
        text.replace('\n', "; ")
    } else {
        text
    }
}

/// The same with the lines of the messages, for events: upstream's contain the output of programs.
pub fn report_lines(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let message = cause.to_string();
        if !message.is_empty() && !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{report, report_lines};

    #[derive(Debug, thiserror::Error)]
    #[error("reading /x")]
    struct Outer(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("outer: {0}")]
    struct Repeats(#[source] std::io::Error);

    #[test]
    fn each_cause_is_reported_once() {
        assert_eq!(
            report(&Outer(std::io::Error::other("gone"))),
            "reading /x: gone"
        );
        assert_eq!(
            report(&Repeats(std::io::Error::other("gone"))),
            "outer: gone"
        );
        let lines = std::io::Error::other("a\nb");
        assert_eq!(
            (report(&lines).as_str(), report_lines(&lines).as_str()),
            ("a; b", "a\nb")
        );
    }
}
