//! Certificates as upstream writes them: PEM blocks without headers and without text in between.

use ::pem::{EncodeConfig, LineEnding, Pem, encode_config, parse_many};

/// The decoded PEM blocks of a text; everything else is skipped.
pub(super) fn blocks(text: &[u8]) -> Vec<Vec<u8>> {
    let blocks = parse_many(text).unwrap_or_default();
    blocks.into_iter().map(Pem::into_contents).collect()
}

/// Encodes certificates.
pub(super) fn certificates<'a>(blocks: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    let blocks = blocks.into_iter();
    let texts = blocks.map(|block| encode_config(&Pem::new("CERTIFICATE", block), config));
    texts.collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_between_blocks_is_dropped() {
        let text = "subject\n-----BEGIN TRUSTED CERTIFICATE-----\nname: value\n\nAQID\n\
            -----END TRUSTED CERTIFICATE-----\nbetween\n\
            -----BEGIN CERTIFICATE-----\nBA==\n-----END CERTIFICATE-----\n";
        let blocks = blocks(text.as_bytes());
        assert_eq!(blocks, [vec![1, 2, 3], vec![4]]);
        let written = certificates(blocks.iter().map(Vec::as_slice));
        let clean = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n\
            -----BEGIN CERTIFICATE-----\nBA==\n-----END CERTIFICATE-----\n";
        assert_eq!(String::from_utf8(written).unwrap(), clean);
    }
}
