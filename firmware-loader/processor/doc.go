// Package processor is the NIC processor as the host sees it (descriptors/SPEC.md 2.10): registers,
// slots and mailbox, between a device and its engine. It runs control programs
// (internal/machine) against what the engine does.
package processor
