package igb

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
	"github.com/trapeze-nic/trapeze/internal/inetsum"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

func (q *queue) Put(frames []ethernet.Frame) (int, error) {
	s := &q.send
	descriptors := s.descriptors
	mask := uint32(len(descriptors) - 1)
	tail, room := s.tail, (s.clean-s.tail-1)&mask
	last, bytes := tail, uint64(0)
	var err error
	n := 0
	for ; n < len(frames) && room > 0; n++ {
		f := &frames[n]
		if f.Buffer >= q.Buffers || uint32(f.Offset)+uint32(f.Length) > q.Stride {
			err = q.BadFrame(f, "")
			break
		}
		var options uint64
		length := uint64(f.Length)
		if f.Flags.Requests() != 0 || f.Segment != 0 {
			var c sent
			if c, options, length, err = q.offload(f); err != nil {
				break
			}
			if c != s.context {
				if room < 1+txContextLen {
					break
				}
				descriptors[tail&mask], s.buffers[tail&mask] = c, port.NoBuffer
				s.context = c
				q.Contexts++
				tail++
				room--
			}
		} else if uint32(f.Length)-ethernet.HeaderSize > q.MaxFrame-ethernet.HeaderSize {
			err = q.BadFrame(f, "")
			break
		}
		last = tail
		command := uint64(f.Length) | txData | txEnd | txCRC | options | length<<txPayloadShift
		if tail&(reportEvery-1) == 0 {
			command |= txReport
		}
		descriptors[tail&mask] = sent{low: q.Address(f.Buffer, f.Offset), high: command}
		s.buffers[tail&mask] = f.Buffer
		bytes += uint64(f.Length)
		tail++
		room--
	}
	if tail != s.tail {
		if n > 0 {
			descriptors[last&mask].high |= txReport
		}
		s.tail = tail & mask
		q.Counters.SentFrames.Add(uint64(n))
		q.Counters.SentBytes.Add(bytes)
		if werr := s.bell.Ring(s.tail); werr != nil {
			q.Port.Fail(werr)
		}
	}
	return n, err
}

// offload returns the context that a frame needs, and the options and the length of its
// data descriptor.
func (q *queue) offload(f *ethernet.Frame) (c sent, options, length uint64, err error) {
	bad := func(field string, v any) (sent, uint64, uint64, error) {
		return sent{}, 0, 0, q.BadFrame(f, fmt.Sprintf("%s is %v, which does not fit the rest or was not switched on", field, v))
	}
	flags := f.Flags.Requests()
	sums := flags & (ethernet.SumIPv4 | ethernet.SumTCP | ethernet.SumUDP)
	headers := uint32(f.L2) + uint32(f.L3)
	length = uint64(f.Length)
	switch {
	case flags&^q.sends != 0 && f.Segment == 0, flags&ethernet.VLANTagged&^q.sends != 0:
		return bad("Flags", fmt.Sprintf("%#x", uint16(f.Flags)))
	case sums&ethernet.SumTCP != 0 && sums&ethernet.SumUDP != 0, sums&ethernet.SumIPv4 != 0 && f.Flags&ethernet.IPv6 != 0:
		return bad("Flags", fmt.Sprintf("%#x", uint16(f.Flags)))
	case sums != 0 && (f.L2 < ethernet.HeaderSize || f.L2 > 127):
		return bad("L2", f.L2)
	case sums != 0 && (f.L3 < 20 || headers > uint32(f.Length)):
		return bad("L3", f.L3)
	case f.Segment != 0 && (!q.segments || sums&ethernet.SumTCP == 0):
		return bad("Segment", f.Segment)
	case f.Segment != 0 && (f.L4 < 20 || headers+uint32(f.L4) >= uint32(f.Length)):
		return bad("L4", f.L4)
	case f.Segment != 0 && headers+uint32(f.L4)+uint32(f.Segment) > q.MaxFrame:
		return bad("Segment", f.Segment)
	case f.Segment == 0 && uint32(f.Length)-ethernet.HeaderSize > q.MaxFrame-ethernet.HeaderSize:
		return sent{}, 0, 0, q.BadFrame(f, "")
	}
	c.high = txContext
	if flags&ethernet.VLANTagged != 0 {
		c.low |= uint64(f.VLAN) << txVLANShift
		options |= txVLAN
	}
	if sums != 0 {
		c.low |= uint64(f.L3) | uint64(f.L2)<<txL2Shift
	}
	if f.Flags&ethernet.IPv6 == 0 && sums != 0 {
		c.high |= txIsIPv4
	}
	if sums&ethernet.SumIPv4 != 0 {
		options |= txSumIP
	}
	if sums&(ethernet.SumTCP|ethernet.SumUDP) != 0 {
		options |= txSumL4
	}
	if sums&ethernet.SumTCP != 0 {
		c.high |= txIsTCP
	}
	if f.Segment != 0 {
		c.high |= uint64(f.L4)<<txL4Shift | uint64(f.Segment)<<txMSSShift
		options |= txSegment
		if c.high&txIsIPv4 != 0 {
			options |= txSumIP
		}
		length -= uint64(headers) + uint64(f.L4)
		if err := q.prepareSegments(f); err != nil {
			return sent{}, 0, 0, err
		}
	}
	return c, options, length, nil
}

// prepareSegments puts into a frame that is to be cut what the device counts on: no length
// in the sum of the pseudo header, as it adds that of each segment, and neither length nor
// checksum in the header of IPv4.
func (q *queue) prepareSegments(f *ethernet.Frame) error {
	b := q.Cache().Pool().Bytes(*f)
	if b == nil {
		return q.BadFrame(f, "")
	}
	ip, tcp := b[f.L2:], b[int(f.L2)+int(f.L3):]
	if f.Flags&ethernet.IPv6 == 0 {
		ip[2], ip[3], ip[10], ip[11] = 0, 0, 0, 0
	} else {
		ip[4], ip[5] = 0, 0
	}
	// One's complement: to take the length away is to add its complement.
	sum := inetsum.Fold(inetsum.Add(uint64(^uint16(len(tcp))), tcp[16:18]))
	tcp[16], tcp[17] = byte(sum>>8), byte(sum)
	return nil
}

func (q *queue) Reclaim() {
	s := &q.send
	mask := uint32(len(s.descriptors) - 1)
	head := atomic.LoadUint32(s.head)
	used, sent := (s.tail-s.clean)&mask, (head-s.clean)&mask
	if head > mask || sent > used {
		s.bad = true
		q.Broken()
		return
	}
	if sent == 0 {
		return
	}
	q.Moved()
	mmio.FromDevice()
	for sent > 0 {
		part := min(sent, mask+1-s.clean)
		list := s.buffers[s.clean : s.clean+part]
		if q.Contexts > 0 {
			list = slices.DeleteFunc(list, func(b uint32) bool { return b == port.NoBuffer })
			q.Contexts -= part - uint32(len(list))
		}
		q.Cache().GiveAll(list)
		s.clean = (s.clean + part) & mask
		sent -= part
	}
}

func (q *queue) Fault() error {
	if q.send.bad {
		return errHead
	}
	return nil
}

func (q *queue) Held() uint32 {
	s := &q.send
	return (s.tail - s.clean) & uint32(len(s.descriptors)-1)
}

// errHead: the device says that it has sent what it was not given.
var errHead = fmt.Errorf("%w: the head of its send ring is out of range", ethernet.ErrProtocol)

// Renew implements port.Ring: it takes the send ring from the device and gives it an empty one.
func (q *queue) Renew(ctx context.Context) error {
	q.Pause()
	base := q.device.family.sendBase(q.Index)
	q.device.regs.Write(base+ringControl, sendThresholds)
	if err := q.waitRing(ctx, base, false); err != nil {
		return err
	}
	q.drop()
	if err := q.startSend(ctx); err != nil {
		return err
	}
	q.Run()
	return nil
}
