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

// quantity reads a required quantity.
func (r *resolver) quantity(key string, k kind, text *string) float64 {
	if text == nil {
		r.fail(key, "", k.allowed, ErrMissing)
		return k.low
	}
	v, ok := k.parse(*text)
	if !ok {
		r.fail(key, *text, k.allowed, ErrValue)
		return k.low
	}
	return v
}

// choose returns the first text that is there, and the key to blame if none is.
func choose(texts ...*string) *string {
	for _, t := range texts {
		if t != nil {
			return t
		}
	}
	return nil
}

// bus resolves one host's bus: its own table first, then the common one; within
// a table the overhead of one direction first, then that of both.
func (r *resolver) bus(prefix string, own, common rawBus) Bus {
	duplex := choose(own.Duplex, common.Duplex)
	b := Bus{}
	switch {
	case duplex == nil:
		r.fail(prefix+".duplex", "", `"half" or "full"`, ErrMissing)
	case *duplex == "full":
		b.FullDuplex = true
	case *duplex != "half":
		r.fail(prefix+".duplex", *duplex, `"half" or "full"`, ErrValue)
	}
	read := r.quantity(prefix+".read", bandwidth, choose(own.Read, common.Read))
	write := r.quantity(prefix+".write", bandwidth, choose(own.Write, common.Write))
	readOverhead := r.quantity(prefix+".read_overhead", span, choose(own.ReadOverhead, own.Overhead, common.ReadOverhead, common.Overhead))
	writeOverhead := r.quantity(prefix+".write_overhead", span, choose(own.WriteOverhead, own.Overhead, common.WriteOverhead, common.Overhead))
	b.Read, b.Write = NewCost(readOverhead, read), NewCost(writeOverhead, write)
	return b
}

func (w *raw) resolve(title, file string) (*Profile, error) {
	r := &resolver{file: file}
	p := &Profile{Name: title}
	if w.Summary != nil {
		p.Summary = *w.Summary
	}
	p.Sender = r.bus("sender.bus", w.Sender.Bus, w.Bus)
	p.Receiver = r.bus("receiver.bus", w.Receiver.Bus, w.Bus)
	p.Host = Micros(r.quantity("host.cost", span, w.Host.Cost))
	p.NIC.Decision = Micros(r.quantity("nic.decision", span, w.NIC.Decision))
	p.NIC.Completion = Micros(r.quantity("nic.completion", span, w.NIC.Completion))
	p.NIC.Packet = Micros(r.quantity("nic.packet", span, w.NIC.Packet))
	p.NIC.Buffers = r.buffers(w.NIC.Buffers)
	if w.NIC.Memory != nil {
		p.NIC.Memory = NewCost(0, r.quantity("nic.memory", bandwidth, w.NIC.Memory)).PerByte
	}
	p.Link.Pulse = NewCost(r.quantity("link.overhead", span, w.Link.Overhead), r.quantity("link.bandwidth", bandwidth, w.Link.Bandwidth))
	p.Link.Latency = Micros(r.quantity("link.latency", span, w.Link.Latency))
	p.Link.Header = int(r.quantity("link.header", size, w.Link.Header))
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
