// Package capture lends a program beside this one the frames that pass through this process, as memory into which they
// are copied.
package capture

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/framering"
	"github.com/trapeze-nic/trapeze/internal/memfile"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// log2 is the size of the ring of a capture, 16 MiB as a power of two.
const log2 = 24

// Help describes the command that lends.
const Help = "Lends memory into which frames are copied while the client is connected. Parameters: optional int port, optional int snaplen."

// Watchable is a source of frames that can be captured.
type Watchable interface {
	// Watch calls show with each frame, until Watch is called with nil. It reports false if another watches.
	Watch(show func(sent bool, frame []byte)) bool
}

// Capture lends the frames of one source.
type Capture struct {
	mu   sync.Mutex // guards ring
	ring *framering.Writer
}

// Lend answers a client that asks for the first snaplen bytes of each frame. The loan ends with the client's connection;
// there is one client at a time.
func (c *Capture) Lend(on Watchable, snaplen int, log *slog.Logger) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A client can neither make the file smaller nor keep others from mapping it.
	fd, memory, err := memfile.Map("capture", uint64(framering.Size(log2)), memfile.Options{Seals: memfile.Final, Filled: true})
	if err != nil {
		return nil, err
	}
	free := func() error {
		return errors.Join(os.NewSyscallError("munmap", unix.Munmap(memory)), os.NewSyscallError("close", unix.Close(fd)))
	}
	ring, err := framering.NewWriter(memory, snaplen)
	if err != nil {
		return nil, errors.Join(err, free())
	}
	if !on.Watch(func(sent bool, frame []byte) { ring.Put(time.Now(), sent, frame) }) {
		return telemetry.Capture{Refused: "its frames are captured already"}, free()
	}
	c.ring = ring
	return &telemetry.Loan{Answer: telemetry.Capture{}, FD: fd, End: func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		on.Watch(nil)
		c.ring = nil
		if err := free(); err != nil {
			log.Warn("memory of a capture is not given back", "err", err)
		}
	}}, nil
}

// End tells a program that captures that no frame comes any more.
func (c *Capture) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ring != nil {
		c.ring.End()
	}
}
