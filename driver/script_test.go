package driver_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/scripttest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestScripts runs the cases in testdata/scripts. README.md there has the commands.
func TestScripts(t *testing.T) {
	scripttest.Run(t, "testdata/scripts", func(t *testing.T) func(words []string) string {
		checkLeaks(t)
		p := &play{t: t, d: newFake(t), options: driver.Options{Logger: quiet, CommandTimeout: timeout}, numbers: map[string]uint64{},
			vis: map[string]*driver.VI{}, queues: map[string]*driver.ReceiveQueue{}, cqs: map[string]*driver.CQ{}, ptags: map[uint32]*driver.Ptag{}, mems: map[string]*driver.Memory{}, rings: map[string]*driver.Ring{},
			ds: map[string]*descriptors.Descriptor{}, running: map[string]chan string{}, answers: map[datasheet.Opcode]answer{}, during: map[datasheet.Opcode]func() string{}}
		p.d.answer = p.answerTo
		p.d.tamper = p.tamperWith
		t.Cleanup(func() { p.close(nil) }) // of cases that fail
		return p.do
	})
}

// play is one run of a case: a fake device, its NIC once that is open, and what was made with it.
type play struct {
	t       *testing.T
	d       *fakeDevice
	n       *driver.NIC
	failed  bool // to open
	options driver.Options
	numbers map[string]uint64
	vis     map[string]*driver.VI
	queues  map[string]*driver.ReceiveQueue // which are in vis too
	cqs     map[string]*driver.CQ
	mems    map[string]*driver.Memory
	ptags   map[uint32]*driver.Ptag
	rings   map[string]*driver.Ring
	ds      map[string]*descriptors.Descriptor
	running map[string]chan string
	// What the device does.
	answers map[datasheet.Opcode]answer
	tampers []func(*datasheet.AdminEntry)
	asked   []datasheet.Opcode
	last    datasheet.AdminEntry
	during  map[datasheet.Opcode]func() string // when it gets a command
	// What those have said.
	duringOut string
	silence   func() // is called when the device does not answer a command
	told      chan datasheet.Event
	lanes     *[2]*fakeLane
	output    outputtest.Buffer
}

// commands are those of scripts, by name. One whose name is among them before is of the device, which
// needs no NIC.
var commands, ofDevice = map[string]func(p *play, a *script.Arguments) string{}, map[string]bool{}

// also adds commands.
func also(more map[string]func(p *play, a *script.Arguments) string) struct{} {
	maps.Copy(commands, more)
	return struct{}{}
}

var _ = also(map[string]func(p *play, a *script.Arguments) string{
	"begin": (*play).begin, "ended": func(p *play, a *script.Arguments) string { p.join(a); return "" }, "join": (*play).join, "until": (*play).until, "note": func(_ *play, a *script.Arguments) string { return strings.Join(a.Words, " ") },
	script.End: (*play).end,
})

func (p *play) do(words []string) (lines string) {
	p.t.Helper()
	if i := slices.Index(words, "/"); i >= 0 {
		for try := range strings.SplitSeq(strings.Join(words[i+1:], " "), "/") {
			try := strings.Fields(try)
			out := p.do(slices.Concat(words[:i], try))
			if out == "" {
				out = words[0] + ": ok"
			}
			lines += strings.Join(try, " ") + ": " + strings.TrimPrefix(out, words[0]+": ") + "\n"
		}
		return lines
	}
	f, known := commands[words[0]]
	must.Be(p.t, known, true, "there is no command %q", words[0])
	if p.n == nil && !p.failed && !ofDevice[words[0]] && words[0] != "open" && words[0] != script.End {
		if out := p.open(script.Parse(nil)); p.n == nil {
			p.t.Fatal(out)
		}
	}
	return f(p, script.Parse(words[1:]))
}

// begin is: begin NAME COMMAND... It carries a command out meanwhile.
func (p *play) begin(a *script.Arguments) string {
	done := make(chan string, 1)
	p.running[a.Words[0]] = done
	words := wordsOf(a)[1:]
	f := commands[words[0]]
	go func() { done <- f(p, script.Parse(words[1:])) }()
	return ""
}

// wordsOf are those that arguments were made of; those that change something come last.
func wordsOf(a *script.Arguments) []string {
	all := slices.Clone(a.Words)
	for _, c := range a.Changes {
		all = append(all, c.Path+c.Op+c.Value)
	}
	return all
}

// join prints what a command that was begun says at its end.
func (p *play) join(a *script.Arguments) (lines string) {
	if len(a.Words) == 0 {
		a.Words = slices.Sorted(maps.Keys(p.running))
	}
	for _, name := range a.Words {
		select {
		case out := <-p.running[name]:
			// Where it was when it ended is not always the same.
			if text, is, failed := strings.Cut(out, " ["); failed && strings.Contains(text, " on fake:") {
				out = "[" + is
			}
			lines += name + " ends: " + strings.TrimSuffix(out, "\n") + "\n"
		case <-time.After(2 * timeout):
			p.t.Fatalf("%s does not end", name)
		}
	}
	return lines
}

// until is: until WORD COMMAND... It repeats a command until the word is in what that prints.
func (p *play) until(a *script.Arguments) (out string) {
	waittest.Until(p.t, a.Words[0], func() bool {
		out = p.do(wordsOf(a)[1:])
		return strings.Contains(out, a.Words[0])
	})
	return out
}

// end closes the NIC, and prints what that says if it does not succeed.
func (p *play) end(*script.Arguments) string { return p.close(script.Parse(nil)) }

// numberOf returns the value of a word in an expression.
func (p *play) numberOf(word string) uint64 {
	p.t.Helper()
	if v, ok := p.numbers[word]; ok {
		return v
	}
	if v, ok := values[word]; ok {
		return v
	}
	if v, err := strconv.ParseUint(word, 0, 64); err == nil {
		return v
	}
	name, field, _ := strings.Cut(word, ".")
	switch m, v, q := p.mems[name], p.vis[name], p.cqs[name]; {
	case m != nil && field == "handle":
		return uint64(m.Handle())
	case m != nil:
		return m.Address()
	case v != nil:
		return uint64(v.Number())
	case q != nil:
		return uint64(q.Number())
	}
	p.t.Fatalf("%q has no value", word)
	return 0
}

func (p *play) value(s string) uint64 {
	p.t.Helper()
	return script.Number(s, p.numberOf)
}

// change makes changes to the fields of what v points to.
func (p *play) change(to any, changes []script.Change) {
	p.t.Helper()
	for _, c := range changes {
		f := must.Get(script.Field(reflect.ValueOf(to).Elem(), c.Path))(p.t)
		switch {
		case f.Kind() == reflect.String:
			f.SetString(c.Value)
		case f.Kind() == reflect.Bool:
			f.SetBool(c.Value == "true")
		case f.Type() == reflect.TypeFor[time.Duration]():
			f.SetInt(int64(p.duration(c.Value)))
		case f.CanInt():
			n, err := strconv.ParseInt(c.Value, 0, 64)
			if err != nil {
				n = int64(p.value(c.Value))
			}
			f.SetInt(n)
		case f.CanUint():
			f.SetUint(c.Of(f.Uint(), p.value(c.Value)))
		case f.Type() == reflect.TypeFor[*driver.ReceiveQueue]():
			f.Set(reflect.ValueOf(p.queues[c.Value]))
		case f.Type() == reflect.TypeFor[*driver.Ptag]():
			number := uint32(p.value(c.Value))
			if p.ptags[number] == nil {
				p.ptags[number] = driver.PtagOf(p.n, number)
			}
			f.Set(reflect.ValueOf(p.ptags[number]))
		default:
			p.t.Fatalf("nothing can be said of %s", c.Path)
		}
	}
}

func (p *play) duration(s string) time.Duration {
	p.t.Helper()
	return must.Get(time.ParseDuration(s))(p.t)
}

// overContext is a context whose time is over when it has ended.
type overContext struct {
	context.Context
	over atomic.Bool
}

func (c *overContext) Err() error {
	if c.over.Load() {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// context is that of a call: in a command's arguments context=canceled, or a time until its end. One that
// ends when-asked does when the device has got a command that it does not answer.
func (p *play) context(a *script.Arguments) context.Context {
	s, ok := a.Option("context")
	if !ok {
		return contextFor(p.t)
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	p.t.Cleanup(cancel)
	switch s {
	case "canceled-when-asked":
		p.d.with(func() { p.silence = cancel })
		return ctx
	case "over-when-asked":
		c := &overContext{Context: ctx}
		p.d.with(func() { p.silence = func() { c.over.Store(true); cancel() } })
		return c
	}
	if after, later := strings.CutPrefix(s, "canceled"); later {
		if after == "" {
			cancel()
		} else {
			time.AfterFunc(p.duration(after[1:]), cancel)
		}
		return ctx
	}
	ctx, cancel = context.WithTimeout(ctx, p.duration(s))
	p.t.Cleanup(cancel)
	return ctx
}

// errs are the errors that errors.Is finds in others.
var errs = []struct {
	name string
	err  error
}{
	{"ErrDeviceGone", driver.ErrDeviceGone}, {"ErrDeviceFault", driver.ErrDeviceFault}, {"ErrProtocol", driver.ErrProtocol},
	{"ErrUnsupportedDevice", driver.ErrUnsupportedDevice}, {"ErrBadRegisters", driver.ErrBadRegisters}, {"ErrVersion", driver.ErrVersion},
	{"ErrNotReady", driver.ErrNotReady}, {"ErrCommandTimeout", driver.ErrCommandTimeout}, {"ErrDMAFault", driver.ErrDMAFault},
	{"ErrBadOpcode", driver.ErrBadOpcode}, {"ErrAborted", driver.ErrAborted}, {"ErrNotRearmed", driver.ErrNotRearmed}, {"ErrPosted", driver.ErrPosted},
	{"ErrOtherVI", driver.ErrOtherVI}, {"ErrBadHandle", driver.ErrBadHandle}, {"ErrNotDMAMemory", driver.ErrNotDMAMemory}, {"ErrInUse", driver.ErrInUse},
	{"ErrCQTooSmall", driver.ErrCQTooSmall}, {"ErrCQOverrun", driver.ErrCQOverrun}, {"ErrUnknownPolicy", pipeline.ErrUnknownPolicy},
	{"invalid parameter", descriptors.ErrInvalidParameter}, {"resource", descriptors.ErrResource}, {"timeout", descriptors.ErrTimeout},
	{"reject", descriptors.ErrReject}, {"invalid reliability", descriptors.ErrInvalidReliability}, {"invalid MTU", descriptors.ErrInvalidMTU},
	{"invalid QoS", descriptors.ErrInvalidQoS}, {"invalid ptag", descriptors.ErrInvalidPtag}, {"invalid RDMA read", descriptors.ErrInvalidRDMARead},
	{"descriptor", descriptors.ErrDescriptor}, {"invalid state", descriptors.ErrInvalidState}, {"no match", descriptors.ErrNoMatch},
	{"not reachable", descriptors.ErrNotReachable}, {"not supported", descriptors.ErrNotSupported}, {"closed", descriptors.ErrClosed},
	{"device", descriptors.ErrDevice}, {"canceled", descriptors.ErrCanceled}, {"disconnected", descriptors.ErrDisconnected},
	{"peer lost", descriptors.ErrPeerLost}, {"broken", descriptors.ErrConnectionBroken}, {"withdrawn", descriptors.ErrWithdrawn},
	{"context.Canceled", context.Canceled}, {"context.DeadlineExceeded", context.DeadlineExceeded}, {"vfio.ErrIOVARange", vfio.ErrIOVARange},
	{"vfio.ErrBadAddress", vfio.ErrBadAddress}, {"vfio.ErrUnknownScheme", vfio.ErrUnknownScheme},
}

// addresses are those of this process, and those on the bus that depend on its size of pages.
var addresses = regexp.MustCompile(`0x[0-9a-f]{9,}|\(low half\) 0x[0-9a-f]+`)

// say prints an error, and behind it what errors.Is finds in it and how many of its fields say something.
func say(err error) string {
	if err == nil {
		return ""
	}
	switch err { // bare
	case descriptors.ErrNotDone, descriptors.ErrQueueEmpty, descriptors.ErrQueueFull:
		return err.Error()
	}
	var is []string
	for _, e := range errs {
		if errors.Is(err, e.err) {
			is = append(is, e.name)
		}
	}
	return addresses.ReplaceAllString(err.Error(), "ADDRESS") + fmt.Sprintf(" [%s]", strings.Join(is, ", "))
}

// outcome prints an error behind a name, and nothing if there is none.
func outcome(name string, err error) string {
	if err == nil {
		return ""
	}
	return name + ": " + say(err)
}

// values are names that numbers have in scripts.
var values = map[string]uint64{
	"identity": datasheet.IdentityOffset, "health": datasheet.HealthOffset, "admin": datasheet.AdminOffset, "clock": datasheet.ClockOffset,
	"counters": datasheet.CounterOffset, "interrupt": datasheet.InterruptOffset, "dma": datasheet.DMAOffset,
	"Type": datasheet.BlockRegType, "Version": datasheet.BlockRegVersion, "Next": datasheet.BlockRegNext, "Size": datasheet.BlockRegSize,
	"Version1": uint64(datasheet.BlockVersion1), "HealthSize": datasheet.HealthSize, "BAR0": datasheet.BAR0Size, "Clock": uint64(datasheet.BlockClock),
	"Magic": uint64(datasheet.RegMagic), "MaxEndpoints": uint64(datasheet.RegMaxEndpoints), "MaxCQs": uint64(datasheet.RegMaxCQs), "MaxQueueLog2": uint64(datasheet.RegMaxQueueLog2),
	"MaxCQLog2": uint64(datasheet.RegMaxCQLog2), "MTU": uint64(datasheet.RegMTU), "PageSizeLog2": datasheet.RegPageSizeLog2,
	"Status": uint64(datasheet.RegStatus), "Control": uint64(datasheet.RegControl), "Fault": uint64(datasheet.RegFault), "FaultDetail": uint64(datasheet.RegFaultDetail), "ResetCount": uint64(datasheet.RegResetCount),
	"AdminControl": uint64(datasheet.RegAdminControl), "AdminStatus": uint64(datasheet.RegAdminStatus),
	"Ready": uint64(datasheet.DeviceReady), "Fatal": uint64(datasheet.DeviceFatal), "Resetting": uint64(datasheet.DeviceResetting),
	"FaultAdminDMA": uint64(datasheet.FaultAdminDMA), "FaultAdminIndex": uint64(datasheet.FaultAdminIndex), "AdminError": uint64(datasheet.AdminError),
	"Marks": uint64(datasheet.FeatureDoorbellMarks), "Eager": uint64(datasheet.FeatureEager),
	"page": datasheet.PageSize, "all": ^uint64(0), "SRAM": fakeSRAM, "wide": uint64(datasheet.EagerWideLog2),
	"block": uint64(datasheet.EagerLog2), "done": uint64(datasheet.StatusDone), "flushed": uint64(datasheet.StatusFlushed), "received": uint64(datasheet.StatusOpReceive),
	"protection": uint64(datasheet.StatusProtectionError), "length": uint64(datasheet.StatusLengthError), "immediate": uint64(datasheet.StatusImmediate), "Receive": uint64(datasheet.CompletionReceive),
	"ReadOnly": uint64(datasheet.AccessReadOnly), "RDMAWrite": uint64(datasheet.AccessRDMAWrite), "U": uint64(datasheet.Unreliable),
	"RD":   uint64(datasheet.ReliableDelivery),
	"Link": uint64(datasheet.EventLink), "CQOverrun": uint64(datasheet.EventCQOverrun), "ConnectionLost": uint64(datasheet.EventConnectionLost),
	"PostDescriptor": uint64(datasheet.EventPostDescriptor), "Catastrophic": uint64(datasheet.EventCatastrophic),
	"Idle": uint64(datasheet.StateIdle), "Error": uint64(datasheet.StateError), "slot": datasheet.RingSlotSize,
	"PolicyTx": uint64(datasheet.RegPolicyTx), "PolicyRx": uint64(datasheet.RegPolicyRx), "MinPulseTx": uint64(datasheet.RegMinPulseTx), "MinPulseRx": uint64(datasheet.RegMinPulseRx),
	"PulseDeadline": uint64(datasheet.RegPulseDeadline), "DMAControl": uint64(datasheet.RegDMAControl), "Progress": uint64(datasheet.RegProgressLow),
	"LogBase": uint64(datasheet.RegLogBaseLow), "LogLog2": datasheet.RegLogLog2, "MaxTransfer": datasheet.MaxTransfer, "reset": uint64(datasheet.ControlReset),
	"lost": uint64(datasheet.ResultConnectionLost), "broken": uint64(datasheet.ResultDescriptor), "LogConsumer": uint64(datasheet.RegLogConsumer),
	"NIC": uint64(driver.AtNIC), "host": uint64(driver.AtHost), "Fails": uint64(driver.NoRoomFails), "Waits": uint64(driver.NoRoomWaits),
	"Ordinary": uint64(driver.NoRoomOrdinary), "Written": uint64(driver.EagerWritten), "MaxDMALog": driver.MaxDMALog,
}
