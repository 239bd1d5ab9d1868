package driver_test

import (
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestManyCommands wraps both rings more than once, from several goroutines.
func TestManyCommands(t *testing.T) {
	checkLeaks(t)
	n := openFake(t, newFake(t))
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[uint32]bool{}
	for range 4 {
		wg.Go(func() {
			for range 700 {
				p, err := n.CreatePtag(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[p.Number()] {
					t.Errorf("ptag %d was handed to two", p.Number())
				}
				seen[p.Number()] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// pausing is a fake that must be polled. Its second poll answers what the first one, during
// which the program is not run for a while, did not.
type pausing struct {
	*fakeDevice
	polls, pauseAt int
	pause          time.Duration
}

func (p *pausing) Poll() bool {
	p.polls++
	if p.polls == p.pauseAt {
		time.Sleep(p.pause)
	} else if p.polls > p.pauseAt {
		p.with(func() {
			for _, c := range p.admin.unanswered {
				p.reply(&c, datasheet.ResultSuccess)
			}
			p.admin.unanswered = nil
		})
	}
	return false
}

// TestTimeAwayDoesNotCount: a device has its time for a command also where the program that
// waits is not run for longer.
func TestTimeAwayDoesNotCount(t *testing.T) {
	checkLeaks(t)
	const timeout = 200 * time.Millisecond
	d := &pausing{fakeDevice: newFake(t), pause: 2 * timeout}
	n := open(t, d, driver.Options{CommandTimeout: timeout})
	d.with(func() {
		d.answer = func(*datasheet.Command) (datasheet.Result, bool) { return 0, false }
	})
	d.pauseAt = d.polls + 1
	if _, err := n.CreatePtag(contextFor(t)); err != nil {
		t.Error(err)
	}
}
