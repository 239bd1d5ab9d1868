package driver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/script"
	"github.com/trapeze-nic/trapeze/pipeline"
)

var _ = also(map[string]func(p *play, a *script.Arguments) string{
	"open": (*play).open, "rig": (*play).rig, "close": (*play).close, "identity": (*play).identity, "health": (*play).health,
	"call": (*play).call, "wait": (*play).wait, "request": (*play).request, "events": (*play).events, "handler": (*play).handler, "waiting": (*play).waiting, "logged": (*play).logged,
	"memory": (*play).memory, "bytes": (*play).bytes, "cq": (*play).cq, "vi": (*play).vi, "shared": (*play).shared, "ring": (*play).ring,
	"policy": (*play).policy, "log": (*play).log, "write-sram": (*play).writeSRAM, "read-sram": (*play).readSRAM, "stats": (*play).stats,
})

// open is: open [timeout=TIME] [vendor=ID] [log]. The NIC opens by itself where it is not opened before.
func (p *play) open(a *script.Arguments) string {
	if s, ok := a.Option("timeout"); ok {
		p.options.CommandTimeout = p.duration(s)
	}
	if a.Flag("log") {
		p.options.Logger = slog.New(slog.NewTextHandler(&p.output, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if s, ok := a.Option("vendor"); ok {
		p.options.IDs = []driver.PCIID{{Vendor: uint16(p.value(s)), Device: datasheet.PCIDeviceID}}
	}
	if s, ok := a.Option("address"); ok {
		_, err := driver.Open(p.context(a), s, p.options)
		p.failed = true
		_ = p.d.Close() // it is not used
		return outcome("open", err)
	}
	n, err := driver.New(p.context(a), p.d, p.options)
	p.n, p.failed = n, err != nil
	out := outcome("open", err)
	if err != nil && !p.d.closed {
		out += "\nthe device is open"
	}
	p.asked = nil
	return out
}

// rig is: rig [send=ENTRIES] [recv=ENTRIES]. It makes memory m of 16 KiB, a VI v for 3 sends and 4 receives,
// and completion queues s and r if they have entries.
func (p *play) rig(a *script.Arguments) (out string) {
	out = p.memory(script.Parse([]string{"m", "16384", "Ptag=1"}))
	words := []string{"v", "Reliability=U", "MaxTransfer=4096", "Ptag=1", "SendDepth=3", "RecvDepth=4"}
	for option, name := range map[string]string{"send": "s", "recv": "r"} {
		if entries, ok := a.Option(option); ok {
			out += p.cq(script.Parse([]string{name, entries}))
			words = append(words, option+"="+name)
		}
	}
	if out += p.vi(script.Parse(words)); out != "" {
		p.t.Fatal(out)
	}
	p.asked = nil
	return ""
}

// close is: close [NAME...], of the NIC without a name.
func (p *play) close(a *script.Arguments) (lines string) {
	if a == nil || len(a.Words) == 0 {
		if p.n == nil {
			return ""
		}
		out := outcome("close", p.n.Close())
		if !p.d.closed {
			out += "\nthe device is open"
		}
		return out
	}
	ctx := p.context(a)
	for _, name := range a.Words {
		var err error
		switch m, v, q, r := p.mems[name], p.vis[name], p.cqs[name], p.rings[name]; {
		case m != nil:
			err = m.Close(ctx)
		case v != nil && p.queues[name] != nil:
			err = p.queues[name].Close(ctx)
		case v != nil:
			err = v.Abandon(ctx)
		case q != nil:
			err = q.Close(ctx)
		case r != nil:
			err = r.Close(ctx)
		default:
			p.t.Fatalf("there is no %q", name)
		}
		if out := outcome("close "+name, err); out != "" {
			lines += out + "\n"
		}
	}
	return lines
}

// identity shows what the NIC is.
func (p *play) identity(*script.Arguments) string {
	id := p.n.Identity()
	var names []string
	for _, b := range id.Blocks {
		names = append(names, b.Name())
	}
	id.Blocks = nil
	return fmt.Sprintf("%s over %s: %+v\nblocks: %s", p.n.Address(), p.n.Backend(), id, strings.Join(names, ", "))
}

func (p *play) health(a *script.Arguments) string {
	h, err := p.n.Health(p.context(a))
	if err != nil {
		return outcome("health", err)
	}
	return fmt.Sprintf("health: %+v", h)
}

// call is: call NAME..., methods of NIC that say whether they succeed. All of them is every one.
func (p *play) call(a *script.Arguments) (lines string) {
	ctx := p.context(a)
	calls := map[string]func() error{
		"CreatePtag":  func() error { _, err := p.n.CreatePtag(ctx); return err },
		"ClosePtag":   func() error { return driver.PtagOf(p.n, 1).Close(ctx) },
		"AllocMemory": func() error { _, err := p.n.Alloc(ctx, 100, driver.MemoryAttributes{}); return err },
		"RegisterMemory": func() error {
			_, err := p.n.Register(ctx, make([]byte, 1), driver.MemoryAttributes{})
			return err
		},
		"CreateCQ": func() error { _, err := p.n.CreateCQ(ctx, 4); return err },
		"CreateVI": func() error {
			_, err := p.n.CreateVI(ctx, driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, SendDepth: 1, RecvDepth: 1}, nil, nil)
			return err
		},
		"ConnectWait":   func() error { _, err := p.n.ConnectWait(ctx, ""); return err },
		"Health":        func() error { _, err := p.n.Health(ctx); return err },
		"Counters":      func() error { _, err := p.n.Counters(); return err },
		"Stats":         func() error { _, err := p.n.Stats(); return err },
		"ChannelLevels": func() error { _, err := p.n.ChannelLevels(); return err },
		"Clock":         func() error { _, err := p.n.Clock(); return err },
		"ReadSRAM":      func() error { return p.n.ReadSRAM(0, make([]byte, 4)) },
		"WriteSRAM":     func() error { return p.n.WriteSRAM(0, make([]byte, 4)) },
		"Policy":        func() error { _, err := p.n.Policy(); return err },
		"SetPolicy":     func() error { return p.n.SetPolicy(driver.Policy{Name: "amp"}) },
		"OwnPolicy":     func() error { return p.n.SetPolicy(driver.Policy{}) },
		"HostPolicy":    func() error { return p.n.SetPolicy(driver.Policy{At: driver.AtHost}) },
		"EnableDMALog":  func() error { return p.n.EnableDMALog(16) },
		"DisableDMALog": func() error { return p.n.DisableDMALog() },
		"ReadDMALog":    func() error { _, err := p.n.ReadDMALog(make([]dmalog.Record, 1)); return err },
		"DMALog":        func() error { _, err := p.n.DMALog(); return err },
		"LoadProgram":   func() error { _, err := p.n.LoadProgram(ctx, load.Image{}, load.Options{}); return err },
		"RollBack":      func() error { _, err := p.n.RollBackProgram(ctx, load.Options{}); return err },
		"UnloadProgram": func() error { _, err := p.n.UnloadProgram(); return err },
		"ProgramStatus": func() error { _, err := p.n.ProgramStatus(); return err },
		"ProgramMap":    func() error { _, err := p.n.ProgramMap([]abi.Map{{}}, 0); return err },
	}
	if v := p.vis["v"]; v != nil {
		spare := new(descriptors.Descriptor)
		maps.Copy(calls, map[string]func() error{
			"PostSend":       func() error { return v.PostSend(spare) },
			"PostRecv":       func() error { return v.PostRecv(spare) },
			"PostSendBatch":  func() error { _, err := v.PostSendBatch([]*descriptors.Descriptor{spare}); return err },
			"SendDone":       func() error { _, err := v.SendDone(); return err },
			"RecvDone":       func() error { _, err := v.RecvDone(); return err },
			"RecvWait":       func() error { _, err := v.RecvWait(ctx); return err },
			"ConnectRequest": func() error { _, err := v.ConnectRequest(ctx, driver.Address{}, ""); return err },
			"Disconnect":     func() error { return v.Disconnect(ctx) },
			"Query":          func() error { _, err := v.Query(ctx); return err },
		})
	}
	if c := p.cqs["s"]; c != nil {
		calls["CQ.Done"] = func() error { _, err := c.Done(); return err }
		calls["CQ.Wait"] = func() error { _, err := c.Wait(ctx); return err }
	}
	if a.Flag("all") {
		a.Words = slices.Sorted(maps.Keys(calls))
	}
	for _, name := range a.Words {
		if f := calls[name]; f == nil {
			p.t.Fatalf("there is no call %q", name)
		} else if out := outcome(name, f()); out != "" {
			lines += out + "\n"
		}
	}
	return lines
}

// wait is: wait [NAME] [for=TEXT], a wait for a connection.
func (p *play) wait(a *script.Arguments) string {
	name, _ := a.Option("for")
	c, err := p.n.ConnectWait(p.context(a), name)
	if err != nil {
		return outcome("wait", err)
	}
	return fmt.Sprintf("wait: a connection with %q", c.Discriminator)
}

// request is: request VI [to=TEXT] [from=TEXT].
func (p *play) request(a *script.Arguments) string {
	to, _ := a.Option("to")
	from, _ := a.Option("from")
	_, err := p.vis[a.Words[0]].ConnectRequest(p.context(a), driver.Address{Discriminator: to}, from)
	return outcome("request", err)
}

// handler sets what events are told to. It may use the NIC.
func (p *play) handler(*script.Arguments) string {
	told := make(chan datasheet.Event, 64)
	p.told = told
	p.n.OnEvent(func(e datasheet.Event) {
		if _, err := p.n.CreatePtag(context.Background()); err != nil && !errors.Is(err, descriptors.ErrDevice) && !errors.Is(err, descriptors.ErrClosed) {
			p.t.Error(err)
		}
		told <- e
	})
	return ""
}

// waiting is: waiting FIELD=VALUE..., how waits pass their time.
func (p *play) waiting(a *script.Arguments) string {
	var w driver.Waiting
	p.change(&w, a.Changes)
	p.n.SetWaiting(w)
	return ""
}

// logged is: logged WORD. It waits for a line with the word, and shows that without its time.
func (p *play) logged(a *script.Arguments) (out string) {
	waittest.Until(p.t, "a line with "+wordsOf(a)[0], func() bool {
		for line := range strings.Lines(p.output.String()) {
			if strings.Contains(line, wordsOf(a)[0]) {
				_, out, _ = strings.Cut(line, " ")
			}
		}
		return out != ""
	})
	return out
}

// events is: events COUNT, so many as the handler is told, and no more once the NIC is closed.
func (p *play) events(a *script.Arguments) (lines string) {
	for range p.value(a.Words[0]) {
		select {
		case e := <-p.told:
			cq := strconv.Itoa(int(e.CQ))
			if e.CQ == datasheet.NoCQ {
				cq = "none"
			}
			lines += fmt.Sprintf("told: %v, VI %d, CQ %s, detail %d\n", e.Code, e.Endpoint, cq, e.Detail)
		case <-contextFor(p.t).Done():
			p.t.Fatal("the handler is not told")
		}
	}
	if len(a.Words) > 1 { // last
		lines += fmt.Sprintf("told once more: %d\n", len(p.told))
	}
	return lines
}

// memory is: memory NAME SIZE [FIELD=VALUE...], or memory NAME of=OTHER FROM:TO, heap=SIZE for registration.
func (p *play) memory(a *script.Arguments) string {
	var attributes driver.MemoryAttributes
	ctx := p.context(a)
	of, part := a.Option("of")
	heap, onHeap := a.Option("heap")
	p.change(&attributes, a.Changes)
	var m *driver.Memory
	var err error
	switch {
	case onHeap:
		m, err = p.n.Register(ctx, make([]byte, p.value(heap)), attributes)
	case part:
		from, to, _ := strings.Cut(a.Words[1], ":")
		m, err = p.n.Register(ctx, p.mems[of].Bytes()[p.value(from):p.value(to)], attributes)
	default:
		size, _ := strconv.Atoi(a.Words[1])
		m, err = p.n.Alloc(ctx, size, attributes)
	}
	if err == nil {
		p.mems[a.Words[0]] = m
	} else if m != nil {
		return outcome("memory", err) + ", and there is memory"
	}
	return outcome("memory", err)
}

// bytes is: bytes NAME, what of memory there is.
func (p *play) bytes(a *script.Arguments) string {
	m := p.mems[a.Words[0]]
	b := m.Bytes()
	zero := slices.Max(append(slices.Clone(b), 0)) == 0
	return fmt.Sprintf("%s: size %d, %d bytes there, room for %d, zeroed %v, %+v", a.Words[0], m.Size(), len(b), cap(b), zero, m.Attributes())
}

// cq is: cq NAME ENTRIES.
func (p *play) cq(a *script.Arguments) string {
	entries := must.Get(strconv.Atoi(a.Words[1]))(p.t)
	c, err := p.n.CreateCQ(p.context(a), entries)
	if err == nil {
		p.cqs[a.Words[0]] = c
	}
	return outcome("cq", err)
}

// vi is: vi NAME [like=VI] [send=CQ] [recv=CQ] [FIELD=VALUE...].
func (p *play) vi(a *script.Arguments) string {
	attributes := driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, SendDepth: 1, RecvDepth: 1}
	if name, ok := a.Option("like"); ok {
		attributes = p.vis[name].Attributes()
	}
	send, _ := a.Option("send")
	recv, _ := a.Option("recv")
	ctx := p.context(a)
	p.change(&attributes, a.Changes)
	v, err := p.n.CreateVI(ctx, attributes, p.cqs[send], p.cqs[recv])
	if err == nil {
		p.vis[a.Words[0]] = v
	}
	return outcome("vi", err)
}

// shared is: shared NAME [recv=CQ] [FIELD=VALUE...], a receive queue that VIs share.
func (p *play) shared(a *script.Arguments) string {
	var attributes driver.ReceiveQueueAttributes
	recv, _ := a.Option("recv")
	ctx := p.context(a)
	p.change(&attributes, a.Changes)
	q, err := p.n.CreateReceiveQueue(ctx, attributes, p.cqs[recv])
	if err == nil {
		p.queues[a.Words[0]], p.vis[a.Words[0]] = q, q.Queue()
	}
	return outcome("shared", err)
}

// ring is: ring NAME [FIELD=VALUE...].
func (p *play) ring(a *script.Arguments) string {
	attributes := ringAttributes()
	p.change(&attributes, a.Changes)
	r, err := p.n.CreateRing(p.context(a), attributes)
	if err == nil {
		p.rings[a.Words[0]] = r
	}
	return outcome("ring", err)
}

// policy is: policy FIELD=VALUE... [plan=both|send], which sets one; or policy, which shows it.
func (p *play) policy(a *script.Arguments) string {
	own := func() pipeline.Policy { return pipeline.StoreAndForward{} }
	var want driver.Policy
	plan, planned := a.Option("plan")
	if planned {
		if want.Plan = (&pipeline.Plan{Send: own}); plan == "both" {
			want.Plan.Receive = own
		}
	}
	sets := len(a.Changes) > 0 || planned || a.Flag("own")
	p.change(&want, a.Changes)
	if sets {
		checked := outcome("check", want.Check())
		err := p.n.SetPolicy(want)
		if checked != "" {
			return checked + "\n" + outcome("policy", err)
		}
		return outcome("policy", err)
	}
	s, err := p.n.Policy()
	if err != nil {
		return outcome("policy", err)
	}
	out := fmt.Sprintf("policy at the %v: send %v, receive %v, deadline %v", s.At, s.Send, s.Receive, s.Deadline)
	return out + fmt.Sprintf("; %d timeouts, %d refused, fallback %q", s.Timeouts, s.Refused, say(s.Fallback))
}

// log is: log on RECORDS, log off, log read COUNT, or log.
func (p *play) log(a *script.Arguments) string {
	switch {
	case len(a.Words) == 0:
		s, err := p.n.DMALog()
		if err != nil {
			return outcome("log", err)
		}
		return fmt.Sprintf("log: %+v", s)
	case a.Words[0] == "off":
		return outcome("log off", p.n.DisableDMALog())
	case a.Words[0] == "on":
		n, err := strconv.Atoi(a.Words[1])
		if err != nil {
			n = int(p.value(a.Words[1]))
		}
		return outcome("log on", p.n.EnableDMALog(n))
	}
	records := make([]dmalog.Record, p.value(a.Words[1]))
	n, err := p.n.ReadDMALog(records)
	lines := fmt.Sprintf("log: %d records\n", n)
	for _, r := range records[:n] {
		lines += fmt.Sprintf("  %+v\n", r)
	}
	return lines + outcome("log", err)
}

// writeSRAM is: write-sram OFFSET TEXT.
func (p *play) writeSRAM(a *script.Arguments) string {
	return outcome("write", p.n.WriteSRAM(p.value(a.Words[0]), []byte(a.Words[1])))
}

// readSRAM is: read-sram OFFSET COUNT.
func (p *play) readSRAM(a *script.Arguments) string {
	b := make([]byte, p.value(a.Words[1]))
	if err := p.n.ReadSRAM(p.value(a.Words[0]), b); err != nil {
		return outcome("read", err)
	}
	return fmt.Sprintf("read: %q", b)
}

// stats is: stats NAME..., of VIs and completion queues, or of eager memory.
func (p *play) stats(a *script.Arguments) (lines string) {
	for _, name := range a.Words {
		var s any
		var err error
		if name == "eager" {
			c := p.n.EagerCounts()
			s = struct{ Pushed, Again, FellBack uint64 }{c.Pushed, c.Again, c.FellBack}
		} else if v := p.vis[name]; v != nil {
			s, err = v.Stats()
		} else {
			s, err = p.cqs[name].Stats()
		}
		if err != nil {
			lines += outcome(name, err) + "\n"
		} else {
			lines += fmt.Sprintf("%s: %+v\n", name, s)
		}
	}
	return lines
}
