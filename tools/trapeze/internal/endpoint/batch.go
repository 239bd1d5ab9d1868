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
		_, err := e.vi.SendDone()
		if code, ok := err.(via.Code); ok && code == via.ErrNotDone {
			break
		}
		if err != nil {
			return 0, e.fail(err)
		}
		e.completed++
	}
	e.batch = e.batch[:0]
	for i := range min(uint(most), depth-(e.posted-e.completed)) {
		d, err := e.describe(e.posted+i, n)
		if err != nil {
			return 0, err
		}
		e.batch = append(e.batch, d)
	}
	if len(e.batch) == 0 {
		return 0, nil
	}
	posted, err := e.vi.PostSendBatch(e.batch)
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
	e.batch = e.batch[:0]
	for len(e.batch) < min(most, len(e.recv)) {
		d, err := e.vi.RecvDone()
		if code, ok := err.(via.Code); ok && code == via.ErrNotDone {
			break
		}
		if err != nil {
			if len(e.batch) == 0 {
				return 0, 0, e.fail(err)
			}
			break // it is still so at the next call
		}
		bytes += uint64(d.Length())
		d.Rearm()
		e.batch = append(e.batch, d)
		e.taken++
	}
	if len(e.batch) == 0 {
		return 0, 0, nil
	}
	_, err = e.vi.PostRecvBatch(e.batch)
	return len(e.batch), bytes, err
}
