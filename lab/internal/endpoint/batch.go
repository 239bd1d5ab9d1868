package endpoint

import (
	"errors"

	"github.com/trapeze-nic/trapeze/via"
)

// PostBatch sends up to most messages with one doorbell: the first n bytes of each
// of the buffers that come next. It returns how many there were, fewer if fewer
// buffers are free.
func (e *Endpoint) PostBatch(most, n int) (int, error) {
	if e.lost != nil {
		return 0, e.lost
	}
	depth := uint(len(e.send))
	for e.completed != e.posted && depth-(e.posted-e.completed) < uint(most) {
		done, err := e.vi.SendDoneBatch(e.room(most))
		if err == via.ErrNotDone {
			break
		}
		if err != nil {
			return 0, e.fail(err)
		}
		e.completed += uint(done)
	}
	batch := e.room(min(most, int(depth-(e.posted-e.completed))))
	for i := range batch {
		d, err := e.describe(e.posted+uint(i), n)
		if err != nil {
			return 0, err
		}
		batch[i] = d
	}
	if len(batch) == 0 {
		return 0, nil
	}
	posted, err := e.vi.PostSendBatch(batch)
	e.posted += uint(posted)
	return posted, err
}

// Drain takes up to most messages, without a look at what they say, and gives
// their buffers back with one doorbell. It returns how many there were, and their
// bytes.
func (e *Endpoint) Drain(most int) (messages int, bytes uint64, err error) {
	if e.held {
		return 0, 0, errors.New("drain: the last message has not been released")
	}
	batch := e.room(min(most, len(e.recv)))
	n, err := e.vi.RecvDoneBatch(batch)
	if code, ok := err.(via.Code); ok && code == via.ErrNotDone {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, e.fail(err)
	}
	for _, d := range batch[:n] {
		bytes += uint64(d.Length())
		d.Rearm()
	}
	e.taken += uint(n)
	_, err = e.vi.PostRecvBatch(batch[:n])
	return n, bytes, err
}

// room returns space for n descriptors, until it is called again.
func (e *Endpoint) room(n int) []*via.Descriptor {
	if cap(e.batch) < n {
		e.batch = make([]*via.Descriptor, n)
	}
	return e.batch[:n]
}
