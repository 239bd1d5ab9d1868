// Package speed has the speeds of emulated wires and buses, and what may be asked of them.
package speed

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of what can be asked.
const (
	// MinRate and MaxRate bound rates, in bytes per second. With MinRate the largest frame
	// takes 65 ms, which is below the longest retransmission timeout of an engine. With
	// MaxRate the smallest burst takes the nanosecond that the clock resolves.
	MinRate, MaxRate int64 = 1_000_000, 64_000_000_000
	// MaxSetup bounds the time that a transfer takes besides its bytes: the largest frame in
	// pieces of 64 bytes takes 0.1 s.
	MaxSetup = 100 * time.Microsecond
	// MaxDelay keeps a round trip below the longest retransmission timeout, and a
	// disconnect within the time that a device waits for it to leave.
	MaxDelay = 10 * time.Millisecond
	// MinBurst and MaxBurst bound bursts, in bytes.
	MinBurst, MaxBurst = 64, 65536
)

// DefaultBurst is the payload of a frame of the default wire in memory, in bytes, so that such frames
// take one decision. Larger ones are cut, so that a peer on another processor copies along. Of bursts
// of 2, 4 and 8 KiB these were the best with frames of 64 KiB.
const DefaultBurst = 8192

// Rate is bytes per second, as an option.
type Rate int64

// Set reads bytes per second in MinRate..MaxRate, such as 100M; a K is 1000.
func (r *Rate) Set(v string) error {
	digits, size := v, int64(1)
	for i, unit := range []string{"K", "M", "G"} {
		if rest, ok := strings.CutSuffix(v, unit); ok {
			digits, size = rest, []int64{1e3, 1e6, 1e9}[i]
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > MaxRate/size || n*size < MinRate {
		return fmt.Errorf("it is bytes per second in %d..%d, such as 100M for 100 MB/s", MinRate, MaxRate)
	}
	*r = Rate(n * size)
	return nil
}

// Path is a way for bytes that has a speed. The zero value takes no time.
type Path struct {
	Rate  int64         // bytes per second; zero sets no limit
	Setup time.Duration // of a transfer
}

// Check reports what is out of bounds.
func (p Path) Check() error {
	if p.Rate != 0 && (p.Rate < MinRate || p.Rate > MaxRate) {
		return fmt.Errorf("a rate of %d bytes per second is not in %d..%d", p.Rate, MinRate, MaxRate)
	}
	if p.Setup < 0 || p.Setup > MaxSetup {
		return fmt.Errorf("a set-up of %v is not in 0..%v", p.Setup, MaxSetup)
	}
	return nil
}

// Instant reports whether transfers take no time.
func (p Path) Instant() bool { return p == Path{} }

// Takes is the time of n bytes of a transfer that has been set up.
func (p Path) Takes(n int) time.Duration {
	if p.Rate == 0 {
		return 0
	}
	return time.Duration((int64(n)*int64(time.Second) + p.Rate - 1) / p.Rate)
}

// Carries returns how many of the bytes have passed a while after the set-up, which is shorter than
// they take.
func (p Path) Carries(while time.Duration) int {
	return int(int64(while) * p.Rate / int64(time.Second))
}
