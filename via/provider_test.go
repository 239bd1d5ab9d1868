package via_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/via"
)

// scripted is a provider of ptags and CQs whose calls fail on demand. Calls of
// methods that it does not have end the test.
type scripted struct {
	via.Provider
	fail   error // what calls return, if not nil
	event  func(descriptors.Event)
	closed int
	ptags  uint32
}

func (p *scripted) Attributes() via.NICAttributes {
	return via.NICAttributes{Name: "scripted", MaxCQEntries: 16}
}
func (p *scripted) OnEvent(f func(descriptors.Event))           { p.event = f }
func (p *scripted) Explain(err error) (via.Code, string, error) { return via.ErrDevice, "a hint", err }
func (p *scripted) Poll() bool                                  { return true }
func (p *scripted) Close() error                                { p.closed++; return p.fail }
func (p *scripted) CreatePtag(context.Context) (uint32, error)  { p.ptags++; return p.ptags, p.fail }
func (p *scripted) DestroyPtag(context.Context, uint32) error   { return p.fail }
func (p *scripted) CreateCQ(context.Context, int) (via.ProviderCQ, error) {
	return scriptedCQ{p}, p.fail
}

type scriptedCQ struct{ *scripted }

func (c scriptedCQ) Done() (descriptors.Completion, error) {
	return descriptors.Completion{Endpoint: 4711}, nil // a VI that is not there
}
func (c scriptedCQ) Wait(ctx context.Context) (descriptors.Completion, error) {
	return descriptors.Completion{}, ctx.Err()
}
func (c scriptedCQ) Number() uint32                { return 3 }
func (c scriptedCQ) Entries() int                  { return 16 }
func (c scriptedCQ) Destroy(context.Context) error { return c.fail }

var errScript = errors.New("as the script says")

func wantDeviceError(t *testing.T, what string, err error) {
	t.Helper()
	var e *via.Error
	if !errors.Is(err, via.ErrDevice) || !errors.Is(err, errScript) || !errors.As(err, &e) || e.Device != "scripted" || e.Hint != "a hint" {
		t.Errorf("%s: %v", what, err)
	}
}

func TestNewFailing(t *testing.T) {
	p := &scripted{fail: errScript}
	nic, err := via.New(t.Context(), p)
	wantDeviceError(t, "new", err)
	if nic != nil || p.closed != 1 {
		t.Errorf("NIC %v, provider closed %d times", nic, p.closed)
	}
}

// TestFailingProvider checks that a destruction that failed has changed nothing:
// it can be tried again.
func TestFailingProvider(t *testing.T) {
	ctx := t.Context()
	p := &scripted{}
	nic, err := via.New(ctx, p, nil, via.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	tag, err1 := nic.CreatePtag(ctx)
	cq, err2 := nic.CreateCQ(ctx, 16)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if _, err := cq.Done(); err != via.ErrNotDone {
		t.Errorf("completions of a VI that is not there: %v", err)
	}
	p.fail = errScript
	wantDeviceError(t, "destroy ptag", tag.Destroy(ctx))
	wantDeviceError(t, "destroy CQ", cq.Destroy(ctx))
	_, err = nic.CreatePtag(ctx)
	wantDeviceError(t, "create ptag", err)
	_, err = nic.CreateCQ(ctx, 16)
	wantDeviceError(t, "create CQ", err)
	p.fail = nil
	if err := errors.Join(tag.Destroy(ctx), cq.Destroy(ctx)); err != nil {
		t.Error(err)
	}
	p.fail = errScript
	wantDeviceError(t, "close", nic.Close())
	if err := nic.Close(); !errors.Is(err, via.ErrClosed) || p.closed != 1 {
		t.Errorf("second close: %v, provider closed %d times", err, p.closed)
	}
}

func TestAsyncErrors(t *testing.T) {
	var log bytes.Buffer
	p := &scripted{}
	var first via.AsyncError
	nic, err := via.New(t.Context(), p, via.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
		via.WithErrorHandler(func(e via.AsyncError) { first = e }))
	if err != nil {
		t.Fatal(err)
	}
	if p.event(descriptors.Event{Code: descriptors.EventLink}); first.NIC != nic || first.Code != via.AsyncLink || nic.Name() != "scripted" {
		t.Errorf("the handler given at the start got %+v", first)
	}
	cq, err := nic.CreateCQ(t.Context(), 16)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		event descriptors.Event
		want  via.AsyncError
		log   string
	}{
		{descriptors.Event{Code: descriptors.EventLink, CQ: descriptors.NoCQ, Detail: 1},
			via.AsyncError{Code: via.AsyncLink, Resource: via.ResourceNIC, Detail: 1}, "level=DEBUG"},
		{descriptors.Event{Code: descriptors.EventLink, CQ: descriptors.NoCQ},
			via.AsyncError{Code: via.AsyncLink, Resource: via.ResourceNIC}, "level=INFO"},
		{descriptors.Event{Code: descriptors.EventConnectionLost, CQ: descriptors.NoCQ, Endpoint: 4711},
			via.AsyncError{Code: via.AsyncConnectionLost, Resource: via.ResourceVI}, "level=DEBUG"},
		{descriptors.Event{Code: descriptors.EventCQOverrun, CQ: 3},
			via.AsyncError{Code: via.AsyncCQOverrun, Resource: via.ResourceCQ, CQ: cq}, "level=ERROR"},
		{descriptors.Event{Code: descriptors.EventConnectionLost, CQ: descriptors.NoCQ, Endpoint: 4711, Descriptor: 128, Detail: 35},
			via.AsyncError{Code: via.AsyncConnectionLost, Resource: via.ResourceVI, Descriptor: 128, Detail: 35}, "level=WARN"},
		{descriptors.Event{Code: descriptors.EventPostDescriptor, CQ: descriptors.NoCQ, Endpoint: 1, Descriptor: 64},
			via.AsyncError{Code: via.AsyncPostDescriptor, Resource: via.ResourceDescriptor, Descriptor: 64}, "resource=descriptor"},
	} {
		var got via.AsyncError
		nic.OnError(func(e via.AsyncError) { got = e })
		p.event(c.event)
		if c.want.NIC = nic; got != c.want {
			t.Errorf("%v: %+v, want %+v", c.event.Code, got, c.want)
		}
		nic.OnError(nil)
		log.Reset()
		p.event(c.event)
		if s := log.String(); !strings.Contains(s, c.log) || !strings.Contains(s, "device=scripted") {
			t.Errorf("%v: logged %q, want %q", c.event.Code, s, c.log)
		}
	}
}

// TestDroppedMessagesAreLoggedSeldom: a peer that sends what nobody takes does not fill
// the log; a handler is told of each message.
func TestDroppedMessagesAreLoggedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := &scripted{}
		nic, err := via.New(t.Context(), p, via.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		if err != nil {
			t.Fatal(err)
		}
		flood := func(n int) {
			for range n {
				p.event(descriptors.Event{Code: descriptors.EventReceiveQueueEmpty, Endpoint: 1, CQ: descriptors.NoCQ})
			}
		}
		flood(1000)
		time.Sleep(1500 * time.Millisecond)
		flood(10)
		told := 0
		nic.OnError(func(via.AsyncError) { told++ })
		flood(10)
		if err := nic.Close(); err != nil {
			t.Error(err)
		}
		counts := regexp.MustCompile("count=[0-9]+").FindAllString(log.String(), -1)
		if !slices.Equal(counts, []string{"count=1", "count=999", "count=10"}) || strings.Count(log.String(), "level=WARN") != 3 || told != 10 {
			t.Errorf("%d told, and logged:\n%s", told, log.String())
		}
	})
}
