use std::error::Error;

/// Any error that can cross threads.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// The chain of an error on one line, outermost first. A text that the one before it already
/// ended with is not told twice.
pub fn report(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let told = cause.to_string();
        if !told.is_empty() && !text.ends_with(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        next = cause.source();
    }
    if text.contains('\n') {
        text.replace('\n', "; ")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::report;

    #[derive(Debug, thiserror::Error)]
    #[error("reading /x")]
    struct Outer(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("outer: {0}")]
    struct Repeats(#[source] std::io::Error);

    #[test]
    fn the_chain_is_told_once() {
        assert_eq!(
            report(&Outer(std::io::Error::other("gone"))),
            "reading /x: gone"
        );
        assert_eq!(
            report(&Repeats(std::io::Error::other("gone"))),
            "outer: gone"
        );
        assert_eq!(report(&std::io::Error::other("a\nb")), "a; b");
    }
}
