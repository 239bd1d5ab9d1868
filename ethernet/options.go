package ethernet

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/bits"
	"time"
)

// Options are choices of Open. Pool is needed, all else may be zero.
type Options struct {
	// Pool that received frames come in, and sent ones are in.
	Pool *Pool
	// Queues is the number of queues, 1 to 64; 0 for 1. Flows of IP are spread over them by a hash,
	// everything else comes to queue 0.
	Queues int
	// ReceiveDescriptors and SendDescriptors are the lengths of the rings of a queue, a
	// power of two from 64 to 4096; 0 for 512. A receive ring holds as many buffers.
	ReceiveDescriptors, SendDescriptors int
	// MTU is the longest payload of a frame in bytes, 68 to 9000 and over AF_XDP to 33024; 0 for
	// 1500.
	MTU int
	// Offloads that are wanted. Open fails with ErrNotSupported if the device lacks one.
	Offloads Offloads
	// MAC to receive for, in place of the device's own; zero for that.
	MAC MAC
	// Promiscuous: see Port.SetPromiscuous.
	Promiscuous bool
	// Interrupts says that Queue.Wait sleeps until an interrupt. Else it polls.
	Interrupts bool
	// Moderation is the shortest time between two interrupts of a queue, 0 to 10 ms; 0
	// for none. Devices round it.
	Moderation time.Duration
	// HashKey is the key of the Toeplitz hash; zero for a fixed one.
	HashKey [40]byte
	// Timeout limits each step of the device, and the time that a full
	// send ring may stand still before it is restarted; 0 for 2 s. A back end of vhost-user
	// that stands still is waited for.
	Timeout time.Duration
	// Logger takes what goes wrong in the background; nil for slog.Default.
	Logger *slog.Logger
}

// Limits of Options.
const (
	MinMTU = 68 // the least that IPv4 needs (RFC 791)
	MaxMTU = 9000
	// MaxMTUOverAFXDP is that of Linux's interfaces: virtual ones take more than jumbo frames. Two
	// such frames carry 64 KiB. Longer ones moved little more in a bare stream.
	MaxMTUOverAFXDP = 33024

	MaxQueues      = 64
	minDescriptors = 64
	maxDescriptors = 4096
	maxModeration  = 10 * time.Millisecond
)

// defaultHashKey is random, and the same everywhere so that flows keep their queues.
var defaultHashKey = [40]byte{
	0x3b, 0x8e, 0x51, 0xd2, 0x47, 0xa9, 0x16, 0xfc, 0x60, 0x95, 0xe3, 0x2d, 0xb8, 0x71, 0x0a, 0xc4,
	0x5f, 0x93, 0x28, 0xed, 0x76, 0x01, 0xba, 0x4c, 0xd7, 0x3e, 0x82, 0x59, 0xf0, 0x1b, 0xa6, 0x64,
	0xcd, 0x37, 0x98, 0x0e, 0x73, 0xe1, 0x5a, 0xbf,
}

// Check fills in defaults; drivers call it first. It fails with a *ConfigError.
func (c Options) Check() (Options, error) { return c.CheckUpTo(MaxMTU) }

// CheckUpTo is Check for a driver whose MTU is mtu at most.
func (c Options) CheckUpTo(mtu int) (Options, error) {
	c.Queues = cmp.Or(c.Queues, 1)
	c.ReceiveDescriptors = cmp.Or(c.ReceiveDescriptors, 512)
	c.SendDescriptors = cmp.Or(c.SendDescriptors, 512)
	c.MTU = cmp.Or(c.MTU, 1500)
	c.HashKey = cmp.Or(c.HashKey, defaultHashKey)
	c.Timeout = cmp.Or(c.Timeout, 2*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	bad := func(field string, value any, want string, a ...any) (Options, error) {
		return c, &ConfigError{"Options." + field, value, fmt.Sprintf(want, a...)}
	}
	badRing := func(n int) bool { return n < minDescriptors || n > maxDescriptors || bits.OnesCount(uint(n)) != 1 }
	const ring = "a power of two from %d to %d"
	switch {
	case c.Pool == nil:
		return bad("Pool", "nil", "a pool")
	case c.Queues < 1 || c.Queues > MaxQueues:
		return bad("Queues", c.Queues, "1 to %d", MaxQueues)
	case badRing(c.ReceiveDescriptors):
		return bad("ReceiveDescriptors", c.ReceiveDescriptors, ring, minDescriptors, maxDescriptors)
	case badRing(c.SendDescriptors):
		return bad("SendDescriptors", c.SendDescriptors, ring, minDescriptors, maxDescriptors)
	case c.MTU < MinMTU || c.MTU > mtu:
		return bad("MTU", c.MTU, "%d to %d", MinMTU, mtu)
	case c.Offloads&^OffloadAll != 0:
		return bad("Offloads", fmt.Sprintf("%#x", uint16(c.Offloads)), "known ones")
	case c.MAC != MAC{} && !c.MAC.IsStation():
		return bad("MAC", c.MAC, "a station's address, not a group's")
	case c.Moderation < 0 || c.Moderation > maxModeration:
		return bad("Moderation", c.Moderation, "0 to %v", maxModeration)
	case c.Timeout < 0:
		return bad("Timeout", c.Timeout, "a time above 0")
	case c.MaxFrame() > c.Pool.options.Size:
		return bad("MTU", c.MTU, "at most %d: PoolOptions.Size is %d", c.Pool.options.Size-HeaderSize-TagSize, c.Pool.options.Size)
	case c.Queues*c.ReceiveDescriptors > c.Pool.options.Buffers:
		return bad("Pool", fmt.Sprintf("one of %d buffers", c.Pool.options.Buffers),
			"more than %d: the receive rings hold so many", c.Queues*c.ReceiveDescriptors)
	}
	return c, nil
}

// MaxFrame returns the length in bytes of the longest frame: MTU, header and a tag.
func (c Options) MaxFrame() int { return c.MTU + HeaderSize + TagSize }
