package profile

import "strconv"

// resolver turns the texts of a file into quantities and keeps the first error.
type resolver struct {
	file string
	err  *Error
}

func (r *resolver) fail(key, value, allowed string, err error) {
	if r.err == nil {
		r.err = &Error{File: r.file, Key: key, Value: value, Allowed: allowed, Err: err}
	}
}

// entry is a text and where it stands.
type entry struct {
	key  string
	text *string
}

// quantity reads a required quantity.
func (r *resolver) quantity(k kind, e entry) float64 {
	if e.text == nil {
		r.fail(e.key, "", k.allowed, ErrMissing)
		return k.low
	}
	v, ok := k.parse(*e.text)
	if !ok {
		r.fail(e.key, *e.text, k.allowed, ErrValue)
		return k.low
	}
	return v
}

// choose returns the first entry that is there or, if none is, the last one, which is
// where it should stand.
func choose(entries ...entry) entry {
	for _, e := range entries {
		if e.text != nil {
			return e
		}
	}
	return entries[len(entries)-1]
}

// bus resolves one host's bus: its own table first, then the common one; within
// a table the overhead of one direction first, then that of both.
func (r *resolver) bus(host string, own, common rawBus) Bus {
	prefix := host + ".bus."
	duplex := choose(entry{prefix + "duplex", own.Duplex}, entry{"bus.duplex", common.Duplex})
	b := Bus{}
	switch {
	case duplex.text == nil:
		r.fail(duplex.key, "", `"half" or "full"`, ErrMissing)
	case *duplex.text == "full":
		b.FullDuplex = true
	case *duplex.text != "half":
		r.fail(duplex.key, *duplex.text, `"half" or "full"`, ErrValue)
	}
	read := r.quantity(bandwidth, choose(entry{prefix + "read", own.Read}, entry{"bus.read", common.Read}))
	write := r.quantity(bandwidth, choose(entry{prefix + "write", own.Write}, entry{"bus.write", common.Write}))
	readOverhead := r.quantity(span, choose(entry{prefix + "read_overhead", own.ReadOverhead}, entry{prefix + "overhead", own.Overhead},
		entry{"bus.read_overhead", common.ReadOverhead}, entry{"bus.overhead", common.Overhead}))
	writeOverhead := r.quantity(span, choose(entry{prefix + "write_overhead", own.WriteOverhead}, entry{prefix + "overhead", own.Overhead},
		entry{"bus.write_overhead", common.WriteOverhead}, entry{"bus.overhead", common.Overhead}))
	b.Read, b.Write = NewCost(readOverhead, read), NewCost(writeOverhead, write)
	return b
}

func (w *raw) resolve(title, file string) (*Profile, error) {
	r := &resolver{file: file}
	p := &Profile{Name: title}
	if w.Summary != nil {
		p.Summary = *w.Summary
	}
	p.Sender = r.bus("sender", w.Sender.Bus, w.Bus)
	p.Receiver = r.bus("receiver", w.Receiver.Bus, w.Bus)
	p.Host = Micros(r.quantity(span, entry{"host.cost", w.Host.Cost}))
	p.NIC.Decision = Micros(r.quantity(span, entry{"nic.decision", w.NIC.Decision}))
	p.NIC.Completion = Micros(r.quantity(span, entry{"nic.completion", w.NIC.Completion}))
	p.NIC.Packet = Micros(r.quantity(span, entry{"nic.packet", w.NIC.Packet}))
	p.NIC.Buffers = r.buffers(w.NIC.Buffers)
	if w.NIC.Memory != nil {
		p.NIC.Memory = NewCost(0, r.quantity(bandwidth, entry{"nic.memory", w.NIC.Memory})).PerByte
	}
	p.Link.Pulse = NewCost(r.quantity(span, entry{"link.overhead", w.Link.Overhead}), r.quantity(bandwidth, entry{"link.bandwidth", w.Link.Bandwidth}))
	p.Link.Latency = Micros(r.quantity(span, entry{"link.latency", w.Link.Latency}))
	p.Link.Header = int(r.quantity(size, entry{"link.header", w.Link.Header}))
	if r.err != nil {
		return nil, r.err
	}
	return p, nil
}

func (r *resolver) buffers(n *int64) int {
	const allowed = "1 to 1024"
	switch {
	case n == nil:
		r.fail("nic.buffers", "", allowed, ErrMissing)
	case *n < 1 || *n > 1024:
		r.fail("nic.buffers", strconv.FormatInt(*n, 10), allowed, ErrValue)
	default:
		return int(*n)
	}
	return 1
}
