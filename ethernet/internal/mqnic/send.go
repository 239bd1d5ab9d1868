package mqnic

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
)

func (q *queue) Put(frames []ethernet.Frame) (int, error) {
	s := &q.send
	mask := uint32(len(s.descriptors) - 1)
	tail, bytes := s.posted, uint64(0)
	frames = frames[:min(len(frames), len(s.descriptors)-int(s.posted-s.clean))]
	var err error
	for i := range frames {
		f := &frames[i]
		length := uint32(f.Length)
		if f.Buffer >= q.Buffers || uint32(f.Offset)+length > q.Stride || length-ethernet.HeaderSize > q.MaxFrame-ethernet.HeaderSize || f.Segment != 0 {
			err = q.BadFrame(f, fmt.Sprintf("Segment is %d, and the device cuts no segments", f.Segment))
			break
		}
		command := uint64(0)
		if f.Flags.Requests() != 0 {
			if command, err = q.offload(f); err != nil {
				break
			}
		}
		slot := tail & mask
		s.descriptors[slot] = descriptor{command<<descSumShift | uint64(length)<<descLengthShift, q.Address(f.Buffer, f.Offset)}
		s.buffers[slot] = f.Buffer
		bytes += uint64(length)
		tail++
	}
	n := int(tail - s.posted)
	if n > 0 {
		q.Counters.SentFrames.Add(uint64(n))
		q.Counters.SentBytes.Add(bytes)
		if werr := s.post(tail); werr != nil {
			q.Port.Fail(werr)
		}
	}
	return n, err
}

func (q *queue) Reclaim() {
	s := &q.send
	cq := &s.completions
	mask := uint32(len(cq.entries) - 1)
	ready := cq.ready(uint32(len(s.descriptors)))
	if ready == 0 {
		return
	}
	used, n := uint32(0), 0
	for ; used < ready; used++ {
		c := &cq.entries[(cq.consumer+used)&mask]
		slot, ok := s.next(c.queue, c.index)
		if !ok {
			if slot, ok = s.claim(c.queue, c.index); !ok {
				s.blame(c)
				break
			}
		}
		if n == len(q.freed) {
			q.Cache().GiveAll(q.freed[:])
			n = 0
		}
		q.freed[n] = s.buffers[slot]
		s.buffers[slot] = port.NoBuffer
		n++
	}
	q.Cache().GiveAll(q.freed[:n])
	if used > 0 {
		q.Moved()
	}
	if err := cq.consume(used); err != nil {
		q.Port.Fail(err)
	}
	if s.fault != nil {
		q.Broken()
	}
}
