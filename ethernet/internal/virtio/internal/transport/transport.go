// Package transport has the common part of the two ways to a virtio network device: PCI
// and vhost-user. Each reaches the same queues in the same memory; they differ in how
// features, queues and notifications are told.
package transport

import (
	"context"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// Transport is a way to a virtio device. Methods are for one goroutine
// at a time, and take no longer than the timeout that the transport was opened with.
// Errors wrap ErrProtocol, ErrNotReady, ErrNotSupported and ErrDeviceGone of package
// ethernet, or the context's.
//
// A device is set up so: Reset, Accept, Config, Alloc and MapPool the first time, Queue for
// each queue, Ready.
type Transport interface {
	// Reset makes the device stop and forget everything but what is mapped, says that
	// there is a driver, and returns the features that the device offers.
	Reset(ctx context.Context) (features uint64, err error)
	// Accept says which of them are used. It fails with ErrNotSupported if the device
	// does not want it so.
	Accept(ctx context.Context, features uint64) error
	// Config returns the device's configuration. Accepted features say what counts.
	Config(ctx context.Context) (Config, error)
	// Alloc allocates zeroed memory for both sides to write, and returns it and its bus
	// address. It stays until Close.
	Alloc(size uint64) ([]byte, uint64, error)
	// MapPool lets the device reach the buffers of a pool, and returns the bus address of
	// the first. It stays until Close.
	MapPool(p *ethernet.Pool) (uint64, error)
	// Interrupts says which eventfds queues may signal, and returns how many there can be:
	// all, or none. They stay with the caller.
	Interrupts(eventfds []int) (int, error)
	// QueueSize returns how many descriptors a queue may have, 0 if there is no such queue.
	QueueSize(ctx context.Context, index int) (int, error)
	// Queue enables a queue.
	Queue(ctx context.Context, index int, q Queue) (Doorbell, error)
	// Ready starts the device.
	Ready(ctx context.Context) error
	// StopQueue makes the device leave a queue alone, which can be enabled again. It fails
	// with ErrNotSupported if only the whole device can be stopped.
	StopQueue(ctx context.Context, index int) error
	// Stop makes the device leave all memory alone.
	Stop(ctx context.Context) error
	// Health returns why the device is of no use any more, nil if it is. It may be called
	// by any goroutine.
	Health() error
	// Close gives everything back. It stops the device first; if that fails memory stays
	// mapped, the pool in use, and the error wraps ErrNotStopped.
	Close() error
}

// Queue is where a queue is, as bus addresses.
type Queue struct {
	Size                       int
	Packed                     bool
	Descriptor, Driver, Device uint64
	// Interrupt is which of the eventfds of Interrupts is signalled when the device has
	// used a buffer, or -1 for none.
	Interrupt int
}

// Config is the configuration of a network device.
type Config struct {
	MAC [6]byte
	// LinkUp counts with FeatureStatus.
	LinkUp bool
	// Pairs is the largest number of pairs of queues. It counts with FeatureMQ; without,
	// there is one.
	Pairs int
	// MTU counts with FeatureMTU, Speed in Mbit/s and FullDuplex with FeatureSpeed. A
	// speed of 0 is not known.
	MTU        int
	Speed      int
	FullDuplex bool
}

// Bits of the device status field (Virtual I/O Device 1.2, "Device Status Field").
const (
	StatusAcknowledge = 1
	StatusDriver      = 2
	StatusDriverOK    = 4
	StatusFeaturesOK  = 8
	StatusNeedsReset  = 64
)

// Features that do not depend on the kind of device ("Reserved Feature Bits").
const (
	FeatureEventIndex     = 1 << 29
	FeatureVersion1       = 1 << 32
	FeatureAccessPlatform = 1 << 33
	FeaturePacked         = 1 << 34
	FeatureOrderPlatform  = 1 << 36
	FeatureQueueReset     = 1 << 40
)

// Features of a network device ("Network Device", "Feature bits").
const (
	FeatureMTU            = 1 << 3
	FeatureMAC            = 1 << 5
	FeatureMergeable      = 1 << 15
	FeatureStatus         = 1 << 16
	FeatureControl        = 1 << 17
	FeatureControlReceive = 1 << 18
	FeatureControlVLAN    = 1 << 19
	FeatureMQ             = 1 << 22
	FeatureControlMAC     = 1 << 23
	FeatureSpeed          = 1 << 63
)
