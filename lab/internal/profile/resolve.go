package profile

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

// bus resolves one host's bus. The file itself goes before its base; in a file the
// host's own table before the common one; in a table the overhead of one direction
// before that of both.
func (r *resolver) bus(host string, layers []*raw, own func(*raw) *rawBus) Bus {
	pick := func(keys ...string) entry {
		var all []entry
		for _, l := range layers {
			for _, k := range keys {
				all = append(all, entry{host + ".bus." + k, own(l).text(k)})
			}
			for _, k := range keys {
				all = append(all, entry{"bus." + k, l.Bus.text(k)})
			}
		}
		return choose(all...)
	}
	b := Bus{}
	switch duplex := pick("duplex"); {
	case duplex.text == nil:
		r.fail(duplex.key, "", `"half" or "full"`, ErrMissing)
	case *duplex.text == "full":
		b.FullDuplex = true
	case *duplex.text != "half":
		r.fail(duplex.key, *duplex.text, `"half" or "full"`, ErrValue)
	}
	read, write := r.quantity(bandwidth, pick("read")), r.quantity(bandwidth, pick("write"))
	b.Read = NewCost(r.quantity(span, pick("read_overhead", "overhead")), read)
	b.Write = NewCost(r.quantity(span, pick("write_overhead", "overhead")), write)
	return b
}

// resolve makes a profile of what a file and its bases say together; layers are these
// one by one, the file first.
func (w *raw) resolve(title, file string, layers []*raw) (*Profile, error) {
	r := &resolver{file: file}
	p := &Profile{Name: title}
	if w.Summary != nil {
		p.Summary = *w.Summary
	}
	p.Sender = r.bus("sender", layers, func(l *raw) *rawBus { return &l.Sender.Bus })
	p.Receiver = r.bus("receiver", layers, func(l *raw) *rawBus { return &l.Receiver.Bus })
	p.Host = Micros(r.quantity(span, entry{"host.cost", w.Host.Cost}))
	p.NIC.Decision = Micros(r.quantity(span, entry{"nic.decision", w.NIC.Decision}))
	p.NIC.Completion = Micros(r.quantity(span, entry{"nic.completion", w.NIC.Completion}))
	p.NIC.Packet = Micros(r.quantity(span, entry{"nic.packet", w.NIC.Packet}))
	p.NIC.Buffers = r.count("nic.buffers", w.NIC.Buffers, 1, 1024)
	for _, one := range []struct {
		key  string
		text *string
		into *Time
	}{{"nic.log_send", w.NIC.LogSend, &p.NIC.LogSend}, {"nic.log_receive", w.NIC.LogReceive, &p.NIC.LogReceive}} {
		if one.text != nil {
			*one.into = Micros(r.quantity(span, entry{one.key, one.text}))
		}
	}
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
