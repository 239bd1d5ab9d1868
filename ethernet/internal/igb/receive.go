package igb

import (
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

func (q *queue) Take(frames []ethernet.Frame) int {
	r := &q.receive
	descriptors := r.descriptors
	mask := uint32(len(descriptors) - 1)
	most, done := uint32(min(len(frames), len(descriptors)-1)), uint32(0)
	for done < most && descriptors[(r.next+done)&mask].status()&rxDone != 0 {
		done++
	}
	if done == 0 {
		return 0
	}
	mmio.FromDevice()
	empty := q.Cache().TakeAll(int(done))
	if len(empty) == 0 {
		q.Counters.NoBuffers.Add(1)
		return 0
	}

	n, bytes, at := 0, uint64(0), r.next
	rejected := len(empty) // from here on, frames has those that are dropped
	for _, fresh := range empty {
		d := &descriptors[at&mask]
		status := d.high
		f := ethernet.Frame{Buffer: r.buffers[at&mask], Offset: q.Headroom, Length: uint16(status >> rxLengthShift)}
		good := status&(rxEnd|rxError) == rxEnd && uint32(f.Length)-ethernet.HeaderSize <= q.MaxFrame-ethernet.HeaderSize && !r.unended
		if status&rxVLAN != 0 {
			f.VLAN, f.Flags = uint16(status>>rxVLANShift), ethernet.VLANTagged
		}
		if r.hashes && d.low&rxHashType != 0 {
			f.Hash = uint32(d.low >> 32)
			f.Flags |= ethernet.Hashed
		}
		if r.sums {
			f.Flags |= verdict(status)
		}
		*d = received{low: q.Address(fresh, q.Headroom)}
		r.buffers[at&mask] = fresh
		at++
		if good {
			frames[n] = f
			bytes += uint64(f.Length)
			n++
		} else {
			q.reject(status)
			rejected--
			frames[rejected] = f
		}
	}
	if rejected < len(empty) { // not before: empty is in the cache
		q.Cache().Free(frames[rejected:len(empty)])
	}
	r.next = at & mask
	q.Counters.ReceivedFrames.Add(uint64(n))
	q.Counters.ReceivedBytes.Add(bytes)
	if err := r.tail.Ring((r.next - 1) & mask); err != nil {
		q.Port.Fail(err)
	}
	return n
}

// reject counts a frame, or a part of one, that is dropped.
func (q *queue) reject(status uint64) {
	r := &q.receive
	switch {
	case r.unended || status&rxEnd == 0:
		if !r.unended {
			q.Counters.Unended.Add(1)
		}
		r.unended = status&rxEnd == 0
	case status&rxError != 0:
		q.Counters.ReceiveErrors.Add(1)
	default:
		q.Counters.BadLengths.Add(1)
	}
}

// verdict says what the device found of checksums.
func verdict(status uint64) (v ethernet.Flags) {
	if status&rxIPChecked != 0 {
		v = ethernet.IPSumGood
		if status&rxIPBad != 0 {
			v = ethernet.IPSumBad
		}
	}
	if status&rxL4Checked != 0 {
		if status&rxL4Bad != 0 {
			v |= ethernet.L4SumBad
		} else {
			v |= ethernet.L4SumGood
		}
	}
	return v
}
