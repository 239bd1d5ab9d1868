package netmem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// viReader reads a server's memory by RDMA.
type viReader struct {
	vi      *via.VI
	timeout time.Duration // of reads that take frames
	memory  *via.Memory   // a place
	posts   []*via.Descriptor
}

// reader is described at conn.
func (c *ringConn) reader(ctx context.Context, timeout time.Duration) (reader, error) {
	vi, err := c.nic.CreateVI(ctx, via.VIAttributes{MaxTransfer: MaxPage, SendDepth: 2, RecvDepth: 2}, nil, nil)
	if err != nil {
		return nil, err
	}
	r := &viReader{vi: vi, timeout: timeout}
	if r.posts, err = vi.NewDescriptors(ctx, 2, 2); err == nil {
		r.memory, err = c.nic.Alloc(ctx, protocol.PlaceSize, via.MemoryAttributes{})
	}
	if err == nil {
		to := c.to
		to.MAC, to.Discriminator = c.ring.RemoteAddress().MAC, to.Discriminator+protocol.DirectSuffix
		_, err = vi.ConnectRequest(ctx, to, "")
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *viReader) read(ctx context.Context, handle uint32, address uint64, into ring.Frame, table uint64, place *[protocol.PlaceSize]byte) (bool, error) {
	posts := r.posts
	if address == 0 {
		posts = posts[1:]
	} else if err := prepare(posts[0], address, handle, into.Memory, into.Offset, into.Length); err != nil {
		return false, err
	}
	last := r.posts[1]
	if err := prepare(last, table, handle, r.memory, 0, protocol.PlaceSize); err != nil {
		return false, err
	}
	last.SetFence() // the page has come before the place is read, on any wire
	if n, err := r.vi.PostSendBatch(posts); n != len(posts) {
		return false, err
	}
	atOnce := true
	for range posts {
		_, err := r.vi.SendDone()
		if errors.Is(err, via.ErrNotDone) {
			atOnce = false
			err = r.await(ctx)
		}
		if err != nil {
			return false, fmt.Errorf("read the server's memory: %w", err)
		}
	}
	copy(place[:], r.memory.Bytes())
	return atOnce, nil
}

// await waits for a read that takes frames.
func (r *viReader) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	_, err := r.vi.SendWait(ctx)
	return err
}

// prepare makes d a read of n bytes.
func prepare(d *via.Descriptor, address uint64, handle uint32, m *via.Memory, offset, n int) error {
	d.Prepare()
	return errors.Join(d.SetRDMARead(address, handle), m.AddTo(d, offset, n))
}

func (r *viReader) close() {
	ctx, cancel := context.WithTimeout(context.Background(), readerEnds)
	defer cancel()
	_ = r.vi.Abandon(ctx) // it fails if the NIC has: then nothing lands either
	if r.memory != nil {
		_ = r.memory.Close(ctx)
	}
}
