//! Perfetto's native format. Services are processes; their lanes, and the critical paths, are tracks.

mod message;

use std::io::{self, Write};

use prost::Message;

use self::message::{
    ClockSnapshot, DebugAnnotation, PerfettoTrace, ProcessDescriptor, SnapshotClock, TracePacket,
    TrackDescriptor, TrackEvent, TrackEventType,
};
use super::timeline::{CRITICAL_PATH, Timeline, TimelineSlice};
use crate::trace::Trace;

/// All packets are of one sequence.
const SEQUENCE: u32 = 1;
/// The first packet of a sequence: there is no state from before.
const STATE_CLEARED: u32 = 1;
/// Perfetto's numbers of the clocks: the time of day, and the one that time stamps are of.
const REALTIME: u32 = 1;
const BOOTTIME: u32 = 6;

/// Writes slices that nest on each track, a flow for each cause, and the critical paths as tracks of their own. Times
/// are those of the day.
///
/// # Errors
/// Writing failed.
pub fn write(traces: &[Trace], to: &mut dyn Write) -> io::Result<()> {
    let timeline = Timeline::new(traces);
    let clock = |clock_id| SnapshotClock {
        clock_id: Some(clock_id),
        timestamp: Some(time(timeline.start)),
    };
    // The time stamps are the time of day already, whatever their clock's name is.
    let clocks = vec![clock(REALTIME), clock(BOOTTIME)];
    packet(
        to,
        TracePacket {
            clock_snapshot: Some(ClockSnapshot { clocks }),
            timestamp: Some(time(timeline.start)),
            sequence_flags: Some(STATE_CLEARED),
            ..TracePacket::default()
        },
    )?;
    let mut uuids = 1..;
    let mut uuid = || uuids.next().unwrap_or(u64::MAX);
    for (pid, process) in (1..).zip(&timeline.processes) {
        let of_process = uuid();
        let is_path = process.name == CRITICAL_PATH;
        descriptor(to, of_process, None, |track| match is_path {
            true => track.name = Some(process.name.clone()),
            false => {
                track.process = Some(ProcessDescriptor {
                    pid: Some(pid),
                    process_name: Some(process.name.clone()),
                });
            }
        })?;
        for lane in &process.lanes {
            let track = uuid();
            descriptor(to, track, Some(of_process), |of_lane| {
                of_lane.name = Some(process.name.clone());
            })?;
            slices(to, track, lane)?;
        }
    }
    Ok(())
}

/// Begins and ends the slices of a track, in the order of time.
fn slices(to: &mut dyn Write, track: u64, lane: &[TimelineSlice]) -> io::Result<()> {
    let mut open: Vec<i128> = Vec::new();
    for slice in lane {
        while let Some(end) = open.pop_if(|end| *end <= slice.start) {
            event(to, end, ended(track))?;
        }
        event(to, slice.start, begun(track, slice))?;
        open.push(slice.end);
    }
    while let Some(end) = open.pop() {
        event(to, end, ended(track))?;
    }
    Ok(())
}

fn begun(track: u64, slice: &TimelineSlice) -> TrackEvent {
    let details = slice.details.iter();
    let details = details.map(|(key, value)| DebugAnnotation {
        name: Some(key.clone()),
        string_value: Some(value.clone()),
    });
    let ids = |flows: &[usize]| flows.iter().map(|flow| *flow as u64 + 1).collect();
    TrackEvent {
        debug_annotations: details.collect(),
        r#type: Some(TrackEventType::SliceBegin.into()),
        track_uuid: Some(track),
        categories: vec![slice.category.to_owned()],
        name: Some(slice.name.clone()),
        flow_ids: ids(&slice.flows_out),
        terminating_flow_ids: ids(&slice.flows_in),
    }
}

fn ended(track: u64) -> TrackEvent {
    TrackEvent {
        r#type: Some(TrackEventType::SliceEnd.into()),
        track_uuid: Some(track),
        ..TrackEvent::default()
    }
}

fn event(to: &mut dyn Write, at: i128, event: TrackEvent) -> io::Result<()> {
    packet(
        to,
        TracePacket {
            timestamp: Some(time(at)),
            track_event: Some(event),
            ..TracePacket::default()
        },
    )
}

fn descriptor(
    to: &mut dyn Write,
    uuid: u64,
    parent: Option<u64>,
    describe: impl FnOnce(&mut TrackDescriptor),
) -> io::Result<()> {
    let mut track = TrackDescriptor {
        uuid: Some(uuid),
        parent_uuid: parent,
        ..TrackDescriptor::default()
    };
    describe(&mut track);
    packet(
        to,
        TracePacket {
            track_descriptor: Some(track),
            ..TracePacket::default()
        },
    )
}

/// Writes a packet: a trace of one packet after the other is a trace of all of them.
fn packet(to: &mut dyn Write, packet: TracePacket) -> io::Result<()> {
    let packet = TracePacket {
        trusted_packet_sequence_id: Some(SEQUENCE),
        ..packet
    };
    let trace = PerfettoTrace {
        packet: vec![packet],
    };
    to.write_all(&trace.encode_to_vec())
}

/// Perfetto has no times before 1970.
fn time(nanos: i128) -> u64 {
    u64::try_from(nanos).unwrap_or_default()
}

#[cfg(test)]
mod tests;
