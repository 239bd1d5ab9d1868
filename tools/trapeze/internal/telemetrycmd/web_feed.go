package telemetrycmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/internal/pause"
)

const (
	// maxViewers bounds the browsers that are served at a time.
	maxViewers = 32
	// lingering is the time for which NICs are asked after the last browser has gone: one that
	// shows another NIC comes back at once.
	lingering = time.Second
)

// feed asks the NICs once for all browsers, while there are any.
type feed struct {
	ctx      context.Context
	cancel   context.CancelFunc
	interval time.Duration
	asking   sync.WaitGroup

	mu      sync.Mutex // guards what follows
	viewers map[*viewer]bool
	running bool
	left    time.Time // when the last viewer left
}

// viewer is a browser that shows the page.
type viewer struct {
	nic string // the name of the NIC that it shows in detail
	// events has what it has not read yet, as server-sent events: the newest only.
	events chan []byte
}

func newFeed(ctx context.Context, interval time.Duration) *feed {
	ctx, cancel := context.WithCancel(ctx)
	return &feed{ctx: ctx, cancel: cancel, interval: interval, viewers: map[*viewer]bool{}}
}

func (f *feed) close() {
	f.mu.Lock()
	f.cancel() // no browser joins any more
	f.mu.Unlock()
	f.asking.Wait()
}

// errViewers refuses a browser.
var errViewers = fmt.Errorf("%d browsers show this page already: close one", maxViewers)

// join adds a browser, which shows the NIC of a name in detail. leave removes it.
func (f *feed) join(nic string) (*viewer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.ctx.Err(); err != nil {
		return nil, err
	}
	if len(f.viewers) >= maxViewers {
		return nil, errViewers
	}
	v := &viewer{nic, make(chan []byte, 1)}
	f.viewers[v] = true
	if !f.running {
		f.running = true
		f.asking.Go(f.run)
	}
	return v, nil
}

func (f *feed) leave(v *viewer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.viewers, v)
	f.left = time.Now()
}

// chosen are the NICs that browsers show. There are no more looks if it returns false: the last
// browser has gone.
func (f *feed) chosen() (names map[string]bool, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names = map[string]bool{}
	for v := range f.viewers {
		names[v.nic] = true
	}
	f.running = f.ctx.Err() == nil && (len(f.viewers) > 0 || time.Since(f.left) < lingering)
	return names, f.running
}

// run asks the NICs until the last browser has gone.
func (f *feed) run() {
	var s sampler
	defer s.close()
	views := map[string]*view{}
	for {
		chosen, more := f.chosen()
		if !more {
			return
		}
		samples := s.next(f.ctx, chosen)
		all := event("host", hostOf(samples))
		details := map[string][]byte{}
		for name := range views {
			if !chosen[name] {
				delete(views, name)
			}
		}
		for i := range samples {
			if name := samples[i].nic.name(); chosen[name] {
				if views[name] == nil {
					views[name] = &view{flow: flow{Records: [][5]int64{}}}
				}
				details[name] = views[name].next(f.ctx, &samples[i])
			}
		}
		f.tell(all, details)
		if pause.For(f.ctx, f.interval) != nil {
			return
		}
	}
}

// tell sends each browser the sample, and the details of its NIC.
func (f *feed) tell(all []byte, details map[string][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for v := range f.viewers {
		select {
		case <-v.events: // it was not read in time
		default:
		}
		v.events <- bytes.Join([][]byte{all, details[v.nic]}, nil)
	}
}

// event is a server-sent event with a value in JSON.
func event(name string, value any) []byte {
	text, err := json.Marshal(value)
	if err != nil { // numbers that JSON does not have
		text, _ = json.Marshal(err.Error())
		name = "problem"
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, text)
}

// shownNIC is the part about a NIC that all browsers get.
type shownNIC struct {
	psNIC
	Name     string  `json:"name"`
	Messages float64 `json:"messages_per_second"`
	Again    float64 `json:"frames_again_per_second"`
	Queued   [2]int  `json:"queued"`
	P99      int64   `json:"p99_ns"`
}

func hostOf(samples []sample) []shownNIC {
	list := []shownNIC{}
	for _, s := range samples {
		n := shownNIC{psNIC{s.nic, s.rates["bytes_sent"], s.rates["bytes_received"]}, s.nic.name(),
			s.rates["messages_sent"] + s.rates["messages_received"], s.rates["frames_retransmitted"], s.queued, 0}
		if s.latency != nil {
			n.P99 = s.latency.P99
		}
		list = append(list, n)
	}
	return list
}
