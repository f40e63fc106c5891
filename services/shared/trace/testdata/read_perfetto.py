"""Reads a Perfetto trace with the parser of the Python package `perfetto`, checks what its trace processor asks of one,
and prints what it holds as JSON."""

import json
import sys

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

with open(sys.argv[1], "rb") as file:
    trace = Trace.FromString(file.read())

tracks = {}
processes = {}
stacks = {}
slices = []
begun, ended = [], []
for packet in trace.packet:
    if packet.HasField("track_descriptor"):
        descriptor = packet.track_descriptor
        assert descriptor.uuid not in tracks
        tracks[descriptor.uuid] = descriptor
        if descriptor.HasField("process"):
            processes[descriptor.process.pid] = descriptor.process.process_name
        continue
    if not packet.HasField("track_event"):
        continue
    event = packet.track_event
    assert event.track_uuid in tracks
    stack = stacks.setdefault(event.track_uuid, [])
    begun.extend(event.flow_ids)
    ended.extend(event.terminating_flow_ids)
    if event.type == TrackEvent.TYPE_SLICE_BEGIN:
        stack.append((event.name, packet.timestamp))
    elif event.type == TrackEvent.TYPE_SLICE_END:
        name, start = stack.pop()
        assert start <= packet.timestamp
        slices.append({"name": name, "nanos": packet.timestamp - start})
    else:
        raise AssertionError(event)

assert all(not stack for stack in stacks.values())
assert sorted(begun) == sorted(ended)
print(json.dumps({"processes": sorted(processes.values()), "slices": slices, "flows": len(begun)}))
