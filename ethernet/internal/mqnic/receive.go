package mqnic

import "github.com/trapeze-nic/trapeze/ethernet"

// postEvery is the number of empty buffers that the device gets at once, as from Linux's driver
// (mqnic_rx.c, mqnic_refill_rx_buffers).
const postEvery = 8

func (q *queue) Take(frames []ethernet.Frame) int {
	r := &q.receive
	cq := &r.completions
	ready := cq.ready(uint32(min(len(frames), len(r.descriptors))))
	if ready == 0 {
		return 0
	}
	empty := q.Cache().TakeAll(int(ready))
	if len(empty) == 0 {
		q.Counters.NoBuffers.Add(1)
		return 0
	}
	mask := uint32(len(cq.entries) - 1)
	n, bytes, used := 0, uint64(0), uint32(0)
	rejected := len(empty) // from here on, frames has those that are dropped
	for _, fresh := range empty {
		c := &cq.entries[(cq.consumer+used)&mask]
		slot, ok := r.next(c.queue, c.index)
		if !ok {
			if slot, ok = r.claim(c.queue, c.index); !ok {
				r.blame(c)
				break
			}
		}
		used++
		f := ethernet.Frame{Buffer: r.buffers[slot], Offset: q.Headroom, Length: c.length}
		r.buffers[slot] = fresh
		r.descriptors[slot].high = q.Address(fresh, q.Headroom)
		if uint32(f.Length)-ethernet.HeaderSize > q.MaxFrame-ethernet.HeaderSize {
			q.Counters.BadLengths.Add(1)
		} else if q.accept.all || q.accept.passes(q.Cache().Pool().Bytes(f)) {
			if q.hashes && c.hashType != 0 {
				f.Hash, f.Flags = c.hash, ethernet.Hashed
			}
			if q.sums {
				f.Flags |= verdict(q.Cache().Pool().Bytes(f), c.sum)
			}
			bytes += uint64(f.Length)
			frames[n] = f
			n++
			continue
		}
		rejected--
		frames[rejected] = f
	}
	if rest := empty[used:]; len(rest) > 0 {
		q.Cache().GiveAll(rest)
	}
	if rejected < len(empty) { // not before: empty is in the cache
		q.Cache().Free(frames[rejected:len(empty)])
	}
	q.Counters.ReceivedFrames.Add(uint64(n))
	q.Counters.ReceivedBytes.Add(bytes)
	q.refill(used)
	return n
}

// refill tells the device how many completions were used, and of the buffers that are in their
// place.
func (q *queue) refill(used uint32) {
	r := &q.receive
	err := r.completions.consume(used)
	if producer := r.clean + uint32(len(r.descriptors)); err == nil && producer-r.posted >= postEvery {
		err = r.post(producer)
	}
	switch {
	case err != nil:
		q.Port.Fail(err)
	case r.fault != nil:
		q.Broken()
	}
}
