//! Words of the domain: pods, ids, quantities, QoS, probes, restarts, phases.
