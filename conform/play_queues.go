package conform

import (
	"reflect"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/script"
	"github.com/trapeze-nic/trapeze/via"
)

// each calls f with each descriptor of a span such as x.Send.0..3, its end, and what posts it. It prints errors.
func (p *play) each(span string, f func(i int, e *End, d *via.Descriptor, post func(*via.Descriptor) error) error) string {
	var lines []string
	for i, name := range script.Span(span) {
		of, queue, _ := strings.Cut(name, ".")
		e := object[*End](p, of)
		post := e.VI.PostSend
		if strings.HasPrefix(queue, "Recv") {
			post = e.VI.PostRecv
		}
		if err := f(i, e, object[*via.Descriptor](p, name), post); err != nil {
			lines = append(lines, name+": "+sayError(err))
		}
	}
	return strings.Join(lines, "\n")
}

// post is DESCRIPTORS OFFSET LENGTH [step=BYTES] [immediate=N] [user=N] [unsignaled] [fence]: each describes so many
// bytes of its end's memory, step behind those of the one before, and is posted. prepare does not post.
func (p *play) post(a *script.Arguments) string { return p.describe(a, nil) }

func (p *play) prepare(a *script.Arguments) string {
	a.Words = append(a.Words, "held")
	return p.describe(a, nil)
}

// write is DESCRIPTORS OFFSET LENGTH MEMORY AT [address=N] [handle=N] and what post takes: it posts an RDMA write of bytes
// of the end's memory to those at AT of MEMORY, or at that address. held does not post. read is the other way.
func (p *play) write(a *script.Arguments) string {
	return p.describe(a, (*via.Descriptor).SetRDMAWrite)
}
func (p *play) read(a *script.Arguments) string { return p.describe(a, (*via.Descriptor).SetRDMARead) }

func (p *play) describe(a *script.Arguments, rdma func(*via.Descriptor, uint64, uint32) error) string {
	step, _ := p.option(a, "step")
	immediate, hasImmediate := p.option(a, "immediate")
	user, _ := p.option(a, "user")
	unsignaled, fence, held := a.Flag("unsignaled"), a.Flag("fence"), a.Flag("held")
	var address, handle uint64
	if rdma != nil {
		m := object[*via.Memory](p, a.Words[3])
		address, handle = m.Address()+p.number(a.Words[4]), uint64(m.Handle())
		if n, ok := p.option(a, "address"); ok {
			address = n
		}
		if n, ok := p.option(a, "handle"); ok {
			handle = n
		}
	}
	if len(a.Changes) > 0 {
		p.Fatalf("there is no %v", a.Changes)
	}
	return p.each(a.Words[0], func(i int, e *End, d *via.Descriptor, post func(*via.Descriptor) error) error {
		e.Prepare(p, d, int(p.number(a.Words[1])+uint64(i)*step), int(p.number(a.Words[2])))
		if rdma != nil {
			OK(p, rdma(d, address, uint32(handle)))
		}
		if hasImmediate {
			d.SetImmediate(uint32(immediate))
		}
		if fence {
			d.SetFence()
		}
		if *d.User() = (descriptors.User{Word: user, Unsignaled: unsignaled}); held {
			return nil
		}
		return post(d)
	})
}

// queue finds what takes descriptors from a queue such as x.Send, one or several.
func (p *play) queue(name string) (done func() (*via.Descriptor, error), batch func([]*via.Descriptor) (int, error)) {
	of, queue, _ := strings.Cut(name, ".")
	if vi := object[*End](p, of).VI; queue == "Recv" {
		return vi.RecvDone, vi.RecvDoneBatch
	} else {
		return vi.SendDone, vi.SendDoneBatch
	}
}

// take is QUEUE [COUNT], as in take x.Send 3: it waits for so many descriptors of the queue, and prints them. With all it takes
// what the queue has, and prints nothing. With fails it does not print which error there is, with bare nothing but that a
// descriptor is done, and with ended also how the connection has ended.
func (p *play) take(a *script.Arguments) string {
	fails, all, bare, ended := a.Flag("fails"), a.Flag("all"), a.Flag("bare"), a.Flag("ended")
	count := 1
	if len(a.Words) > 1 {
		count = int(p.number(a.Words[1]))
	}
	done, _ := p.queue(a.Words[0])
	var l folded
	for i := 0; i < count || all; i++ {
		d, err := p.Take(done)
		if all && err == via.ErrQueueEmpty {
			break
		}
		name, how, _ := strings.Cut(p.sayDone(d, err), ": ")
		switch {
		case fails && err != nil && d != nil:
			wantStatus(p, a.Words[0], d, err, 0)
			how = "fails"
		case bare && err == nil:
			how = "done"
		}
		if ended && err != nil {
			how += ", " + sayEnd(err)
		}
		if !all {
			l.add(name, how)
		}
	}
	return l.String()
}

// ends is X TEXT: it takes all from both queues, and those that fail say that the connection has ended that way.
func (p *play) ends(a *script.Arguments) string {
	vi, want := object[*End](p, a.Words[0]).VI, strings.Join(a.Words[1:], " ")
	var lines []string
	for _, done := range []func() (*via.Descriptor, error){vi.RecvDone, vi.SendDone} {
		for {
			d, err := p.Take(done)
			if err == via.ErrQueueEmpty {
				break
			}
			if err != nil && sayEnd(err) != want {
				lines = append(lines, p.sayDone(d, err)+", "+sayEnd(err))
			}
		}
	}
	return strings.Join(lines, "\n")
}

// takeBatch is QUEUE COUNT MOST: it takes descriptors, at most so many at a time, until it has COUNT, and prints them.
func (p *play) takeBatch(a *script.Arguments) string {
	count, into := int(p.number(a.Words[1])), make([]*via.Descriptor, p.number(a.Words[2]))
	_, batch := p.queue(a.Words[0])
	var l folded
	got := 0
	p.Until(a.Words[0], func() bool {
		n, err := batch(into)
		for i, d := range into[:n] {
			var its error
			if i == n-1 {
				its = err
			}
			name, how, _ := strings.Cut(p.sayDone(d, its), ": ")
			l.add(name, how)
		}
		if got += n; n == 0 && err != via.ErrNotDone {
			l.add(a.Words[0], sayError(err))
			return true
		}
		return got >= count
	})
	return l.String()
}

// heard is HANDLER COUNT [sorted] [ended]: it waits until the handler has been called so often, and prints with what.
func (p *play) heard(a *script.Arguments) string {
	h, sorted, ended := object[*handler](p, a.Words[0]), a.Flag("sorted"), a.Flag("ended")
	count := int(p.number(a.Words[1]))
	p.Until("a call of "+a.Words[0], func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.calls) >= count
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for _, call := range h.calls {
		err, _ := call[1].Interface().(error)
		line := p.say(call[0])
		if d, ok := call[0].Interface().(*via.Descriptor); ok {
			line = p.sayDone(d, err)
		} else if err != nil {
			line = sayError(err)
		}
		if ended {
			line += ", " + sayEnd(err)
		}
		lines = append(lines, line)
	}
	return fold(lines, sorted)
}

// completions is CQ COUNT: it takes so many, and prints them sorted.
func (p *play) completions(a *script.Arguments) string {
	cq := object[*via.CQ](p, a.Words[0])
	var lines []string
	for range p.number(a.Words[1]) {
		p.Until("a completion", func() bool {
			c, err := cq.Done()
			if err == nil {
				lines = append(lines, p.say(reflect.ValueOf(c)))
			}
			return err != via.ErrNotDone
		})
	}
	return fold(lines, true)
}

// fold folds lines that begin with a name.
func fold(lines []string, sorted bool) string {
	if sorted {
		slices.Sort(lines)
		lines = slices.Compact(lines)
	}
	var l folded
	for _, line := range lines {
		name, how, _ := strings.Cut(line, ": ")
		l.add(name, how)
	}
	return l.String()
}

// folded are names with what is said of each: of neighbours of which the same is said it stands there once.
type folded struct {
	lines, names []string
	how          string
}

func (f *folded) add(name, how string) {
	if how != f.how {
		f.flush()
	}
	f.names, f.how = append(f.names, name), how
}

func (f *folded) flush() {
	if len(f.names) > 0 {
		f.lines = append(f.lines, script.Fold(f.names)+": "+f.how)
	}
	f.names = nil
}

func (f *folded) String() string {
	f.flush()
	return strings.Join(f.lines, "\n")
}

// sendFrom is X MEMORY [Y]: x sends 100 bytes of memory, to y if a receive is needed.
func (p *play) sendFrom(a *script.Arguments) string {
	x, m := object[*End](p, a.Words[0]), object[*via.Memory](p, a.Words[1])
	if len(a.Words) > 2 {
		y := object[*End](p, a.Words[2])
		OK(p, y.VI.PostRecv(y.Prepare(p, y.Recv[0], 0, 100)))
		defer func() { p.MustTake(y.VI.RecvDone) }()
	}
	OK(p, x.VI.PostSend(describe(p, x.Send[0], m, 0, 100)))
	d, err := p.Take(x.VI.SendDone)
	return p.sayDone(d, err)
}

// receiveInto is X MEMORY Y: x receives into 100 bytes of memory what y sends.
func (p *play) receiveInto(a *script.Arguments) string {
	x, m := object[*End](p, a.Words[0]), object[*via.Memory](p, a.Words[1])
	OK(p, x.VI.PostRecv(describe(p, x.Recv[0], m, 0, 100)))
	return p.receiveSome(&script.Arguments{Words: []string{a.Words[2], a.Words[0]}})
}

// receiveSome is X Y: x sends 100 bytes until something has come of a receive of y, and takes its sends back.
func (p *play) receiveSome(a *script.Arguments) string {
	from := object[*End](p, a.Words[0])
	d, err := receiveSome(p.World, from, object[*End](p, a.Words[1]))
	out := p.sayDone(d, err)
	for {
		d, err := p.Take(from.VI.SendDone)
		if err == via.ErrQueueEmpty {
			return out
		}
		if err != nil {
			out += "\n" + p.sayDone(d, err)
		}
	}
}

// exchange is X Y LENGTH...: messages of the first end to the second, whose bytes are compared.
func (p *play) exchange(a *script.Arguments) {
	for i, n := range a.Words[2:] {
		exchange(p.World, object[*End](p, a.Words[0]), object[*End](p, a.Words[1]), int(p.number(n)), uint64(i+1))
	}
}

// broken is X Y: an error has broken their connection, unless it is unreliable.
func (p *play) broken(a *script.Arguments) {
	x := object[*End](p, a.Words[0])
	wantBroken(p.World, x, object[*End](p, a.Words[1]), x.VI.Attributes().Reliability)
}

// release is X...: takes back what is on the queues of ends, and destroys them.
func (p *play) release(a *script.Arguments) {
	for _, name := range a.Words {
		release(p.World, object[*End](p, name))
		delete(p.names, name)
	}
}
