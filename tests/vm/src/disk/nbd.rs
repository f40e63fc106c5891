use std::io::{self, Read, Write};

/// Errors of the protocol are I/O errors: the connection ends, and QEMU reports it.
fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

const GREETING: u64 = 0x4e42_444d_4147_4943;
const OPTION: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;

/// Fixed newstyle negotiation, without the zeroes after the export's description.
const HANDSHAKE_FLAGS: u16 = 0b11;

const OPT_EXPORT_NAME: u32 = 1;
const OPT_ABORT: u32 = 2;
const OPT_INFO: u32 = 6;
const OPT_GO: u32 = 7;

const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_UNSUPPORTED: u32 = (1 << 31) + 1;

const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

/// The export has flags and supports flushes and forced unit access: a disk with a write cache.
const EXPORT_FLAGS: u16 = 0b1101;

/// The largest request of the protocol by default.
const MAX_REQUEST: u32 = 32 << 20;

/// An option of the negotiation is a name and a few numbers.
const MAX_OPTION: u32 = 4 << 10;

/// A request of the client.
#[derive(Debug)]
pub(super) enum NbdRequest {
    Read {
        handle: u64,
        offset: u64,
        length: usize,
    },
    Write {
        handle: u64,
        offset: u64,
        data: Vec<u8>,
        /// Whether the write must be durable before the reply.
        durable: bool,
    },
    Flush {
        handle: u64,
    },
    Unsupported {
        handle: u64,
    },
    Disconnect,
}

/// Error numbers of replies.
#[derive(Debug, Clone, Copy)]
pub(super) enum NbdError {
    Io = 5,
    Invalid = 22,
    Unsupported = 95,
}

/// Negotiates the only export of this size; `false` if the client only asked and left.
pub(super) fn negotiate(stream: &mut (impl Read + Write), size: u64) -> io::Result<bool> {
    let mut hello = Vec::new();
    hello.extend(GREETING.to_be_bytes());
    hello.extend(OPTION.to_be_bytes());
    hello.extend(HANDSHAKE_FLAGS.to_be_bytes());
    stream.write_all(&hello)?;
    let _client_flags = read_u32(stream)?;
    loop {
        if read_u64(stream)? != OPTION {
            return Err(invalid("not an option"));
        }
        let (option, length) = (read_u32(stream)?, read_u32(stream)?);
        if length > MAX_OPTION {
            return Err(invalid("an option that is too long"));
        }
        // The name of the export does not matter: there is one.
        read_bytes(stream, length as usize)?;
        match option {
            OPT_EXPORT_NAME => {
                let mut export = size.to_be_bytes().to_vec();
                export.extend(EXPORT_FLAGS.to_be_bytes());
                stream.write_all(&export)?;
                return Ok(true);
            }
            OPT_GO | OPT_INFO => {
                describe(stream, option, size)?;
                if option == OPT_GO {
                    return Ok(true);
                }
            }
            OPT_ABORT => {
                reply_option(stream, option, REP_ACK, &[])?;
                return Ok(false);
            }
            _ => reply_option(stream, option, REP_UNSUPPORTED, &[])?,
        }
    }
}

fn describe(stream: &mut impl Write, option: u32, size: u64) -> io::Result<()> {
    let mut export = INFO_EXPORT.to_be_bytes().to_vec();
    export.extend(size.to_be_bytes());
    export.extend(EXPORT_FLAGS.to_be_bytes());
    reply_option(stream, option, REP_INFO, &export)?;
    let mut blocks = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
    let minimum = u32::try_from(super::SECTOR).unwrap_or(u32::MAX);
    for bytes in [minimum, 4096, MAX_REQUEST] {
        blocks.extend(bytes.to_be_bytes());
    }
    reply_option(stream, option, REP_INFO, &blocks)?;
    reply_option(stream, option, REP_ACK, &[])
}

fn reply_option(stream: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let length = u32::try_from(data.len()).map_err(|_| invalid("an option reply too long"))?;
    let mut reply = OPTION_REPLY.to_be_bytes().to_vec();
    for field in [option, kind, length] {
        reply.extend(field.to_be_bytes());
    }
    reply.extend(data);
    stream.write_all(&reply)
}

/// Reads the next request.
pub(super) fn read_request(stream: &mut impl Read) -> io::Result<NbdRequest> {
    if read_u32(stream)? != REQUEST {
        return Err(invalid("not a request"));
    }
    let (flags, kind) = (read_u16(stream)?, read_u16(stream)?);
    let (handle, offset) = (read_u64(stream)?, read_u64(stream)?);
    let length = read_u32(stream)?;
    if kind <= 1 && length > MAX_REQUEST {
        return Err(invalid("a request that is too long"));
    }
    let length = length as usize;
    Ok(match kind {
        0 => NbdRequest::Read {
            handle,
            offset,
            length,
        },
        1 => NbdRequest::Write {
            handle,
            offset,
            data: read_bytes(stream, length)?,
            durable: flags & 1 != 0,
        },
        2 => NbdRequest::Disconnect,
        3 => NbdRequest::Flush { handle },
        _ => NbdRequest::Unsupported { handle },
    })
}

/// Replies to a request, with the data that was read.
pub(super) fn reply(
    stream: &mut impl Write,
    handle: u64,
    result: Result<&[u8], NbdError>,
) -> io::Result<()> {
    let error = result.err().map_or(0, |error| error as u32);
    let mut bytes = REPLY.to_be_bytes().to_vec();
    bytes.extend(error.to_be_bytes());
    bytes.extend(handle.to_be_bytes());
    bytes.extend(result.unwrap_or_default());
    stream.write_all(&bytes)
}

fn read_bytes(stream: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_array<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_u16(stream: &mut impl Read) -> io::Result<u16> {
    read_array(stream).map(u16::from_be_bytes)
}

fn read_u32(stream: &mut impl Read) -> io::Result<u32> {
    read_array(stream).map(u32::from_be_bytes)
}

fn read_u64(stream: &mut impl Read) -> io::Result<u64> {
    read_array(stream).map(u64::from_be_bytes)
}
