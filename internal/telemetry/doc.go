// Package telemetry shows what the NICs of a process do to programs beside it: it serves a
// socket that speaks DPDK's telemetry protocol, version 2 (doc/guides/howto/telemetry.rst), and
// has the client of it. It reads counters, and touches no data path.
package telemetry
