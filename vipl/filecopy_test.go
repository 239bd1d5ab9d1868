package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// The protocol of examples/vipl/filecopy.c, in Go.
const (
	window = 8
	whole  = 32 << 10
	// The sender's receives take the receiver's first message: where its first buffer is,
	// how far the next is, and their handle.
	helloBytes = 8 + 8 + 4 + 4
	point      = "filecopy"
)

// copier is an end that copies a file. Its memory holds window buffers, and as many and
// one more places for what the receiver says.
type copier struct {
	*conform.End
	ctx context.Context
}

const places = window * whole

func newCopier(ctx context.Context, n *via.NIC) (*copier, error) {
	vi, err := n.CreateVI(ctx, via.VIAttributes{MaxTransfer: whole, RDMAWrite: true}, nil, nil)
	if err != nil {
		return nil, err
	}
	e, err := conform.Equip(ctx, n, vi, 64, 2)
	if err != nil {
		return nil, err
	}
	e.Memory, err = n.Alloc(ctx, places+(window+1)*helloBytes, via.MemoryAttributes{RDMAWrite: true})
	return &copier{e, ctx}, err
}

// post posts d for bytes at offset.
func (c *copier) post(post func(*via.Descriptor) error, d *via.Descriptor, offset, bytes int, more func() error) error {
	d.Prepare()
	if err := c.Memory.AddTo(d, offset, bytes); err != nil {
		return err
	}
	if more != nil {
		if err := more(); err != nil {
			return err
		}
	}
	return post(d)
}

// send sends a file, with RDMA writes or sends.
func (c *copier) send(to via.MAC, file []byte, write bool) error {
	said := func(i int) error {
		return c.post(c.VI.PostRecv, c.Recv[i], places+i*helloBytes, helloBytes, nil)
	}
	for i := range window + 1 {
		if err := said(i); err != nil {
			return err
		}
	}
	if _, err := conform.Request(c.ctx, c.VI, via.Address{MAC: to, Discriminator: point}); err != nil {
		return err
	}
	if _, err := c.VI.RecvWait(c.ctx); err != nil {
		return err
	}
	hello := c.Memory.Bytes()[places:]
	start, stride, handle := binary.LittleEndian.Uint64(hello), binary.LittleEndian.Uint64(hello[8:]), binary.LittleEndian.Uint32(hello[16:])
	sent, emptied := 0, 0
	for bytes := whole; bytes == whole; sent++ {
		i := sent % window
		if sent >= window {
			if _, err := c.VI.RecvWait(c.ctx); err != nil {
				return err
			}
			if err := said(1 + emptied%window); err != nil {
				return err
			}
			emptied++
			if _, err := c.VI.SendWait(c.ctx); err != nil {
				return err
			}
		}
		bytes = copy(c.Memory.Bytes()[i*whole:(i+1)*whole], file)
		file = file[bytes:]
		d := c.Send[i]
		err := c.post(c.VI.PostSend, d, i*whole, bytes, func() error {
			d.SetImmediate(uint32(bytes))
			if write {
				return d.SetRDMAWrite(start+uint64(i)*stride, handle)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for ; emptied < sent; emptied++ {
		if _, err := c.VI.RecvWait(c.ctx); err != nil {
			return err
		}
	}
	return c.VI.Disconnect(c.ctx)
}

// receive waits for an end that sends a file, and returns it.
func (c *copier) receive() (file []byte, err error) {
	for i := range window {
		if err := c.post(c.VI.PostRecv, c.Recv[i], i*whole, whole, nil); err != nil {
			return nil, err
		}
	}
	wait, err := c.NIC.ConnectWait(c.ctx, point)
	if err != nil {
		return nil, err
	}
	if _, err := wait.Accept(c.ctx, c.VI); err != nil {
		return nil, err
	}
	hello := c.Memory.Bytes()[places:]
	binary.LittleEndian.PutUint64(hello, c.Memory.Address())
	binary.LittleEndian.PutUint64(hello[8:], whole)
	binary.LittleEndian.PutUint32(hello[16:], c.Memory.Handle())
	answer := func(bytes int) error {
		if err := c.post(c.VI.PostSend, c.Send[0], places, bytes, nil); err != nil {
			return err
		}
		_, err := c.VI.SendWait(c.ctx)
		return err
	}
	if err := answer(helloBytes); err != nil {
		return nil, err
	}
	for i := 0; ; i = (i + 1) % window {
		d, err := c.VI.RecvWait(c.ctx)
		if err != nil {
			return nil, err
		}
		bytes, ok := d.Immediate()
		if !ok || bytes > whole {
			return nil, fmt.Errorf("a message says %d bytes, %v", bytes, ok)
		}
		file = append(file, c.Memory.Bytes()[i*whole:][:bytes]...)
		if bytes == whole {
			if err := c.post(c.VI.PostRecv, c.Recv[i], i*whole, whole, nil); err != nil {
				return nil, err
			}
		}
		if err := answer(0); err != nil {
			return nil, err
		}
		if bytes < whole {
			return file, c.VI.Disconnect(c.ctx)
		}
	}
}
