package share

import (
	"context"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/buserror"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

const (
	// spinLooks looks without a doorbell come before the first sleep, and each yieldEvery give others the processor.
	spinLooks, yieldEvery = 1024, 8
	// A store to memory does not wake the relay: sleeps are short, and after shortSleeps of them longer.
	shortSleep, longSleep, shortSleeps = 20 * time.Microsecond, time.Millisecond, 128
	// noClients bounds a sleep while there are no clients.
	noClients = 100 * time.Millisecond
	// pagesInTurn bounds the marked pages of a part in a round, so that a client that marks all costs others no more.
	pagesInTurn = 64
)

// bellOffsets are the doorbells of an endpoint's page, producer indexes first. A completion queue has the first place
// only, for its arm word.
var bellOffsets = [...]uint64{datasheet.DoorbellSend, datasheet.DoorbellRecv, datasheet.DoorbellSendArm, datasheet.DoorbellRecvArm}

const firstArm = 2

// page is the page of an endpoint or a completion queue that a client has.
type page struct {
	number uint32
	queue  bool // of a completion queue
	words  []*uint32
	ring   []func(uint32) error
	seen   [firstArm]uint32
	passed *atomic.Uint64 // of the part
}

// look passes on what the client has stored since the last look. An arm word is taken, as the same one may come again.
func (g *page) look() (any bool, err error) {
	for i, word := range g.words {
		value := atomic.LoadUint32(word)
		switch {
		case g.queue || i >= firstArm:
			if value == 0 {
				continue
			}
			value = atomic.SwapUint32(word, 0)
		case value == g.seen[i]:
			continue
		default:
			g.seen[i] = value
		}
		mmio.FromDevice()
		if err := g.ring[i](value); err != nil {
			return true, err
		}
		any = true
		g.passed.Add(1)
	}
	return any, nil
}

// bells has the pages of a part that are in use.
type bells struct {
	bar    []byte        // BAR2 of the part
	passed atomic.Uint64 // doorbells that were passed on

	mu    sync.Mutex
	pages map[uint32]*page
	group int  // to begin with
	all   bool // look at all pages once
}

// open begins with a page: what was stored there before counts no more.
func (b *bells) open(n *NIC, number uint32, queue bool) error {
	g := &page{number: number, queue: queue, passed: &b.passed}
	offsets := bellOffsets[:]
	if queue {
		offsets = []uint64{datasheet.DoorbellCQArm}
	}
	at := uint64(number) * datasheet.PageSize
	for _, offset := range offsets {
		ring, err := n.nic.Doorbell(at + offset)
		if err != nil {
			return err
		}
		word := datasheet.IndexAt(b.bar[at+offset:])
		atomic.StoreUint32(word, 0)
		g.words, g.ring = append(g.words, word), append(g.ring, ring)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pages[number] = g
	return nil
}

// close ends what open began: nothing is passed on when it returns. back undoes that.
func (b *bells) close(number uint32) (back func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.pages[number]
	delete(b.pages, number)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if g != nil {
			b.pages[number] = g
			// Marks of it may have been taken meanwhile: now all pages are looked at once.
			b.all = true
		}
	}
}

// look passes on the doorbells of a part.
func (b *bells) look() (any bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pages) == 0 {
		return false, nil
	}
	if b.all || atomic.LoadUint32(datasheet.IndexAt(b.bar[datasheet.MarksOn:])) == 0 {
		b.all = false
		for _, g := range b.pages {
			rang, err := g.look()
			if any = any || rang; err != nil {
				return any, err
			}
		}
		return any, nil
	}
	// As SPEC 3.4 says: a group is cleared before its marks, and a mark before the doorbells.
	const groups = datasheet.MarkCount / datasheet.MarksPerGroup
	left := pagesInTurn
	for range groups / 4 {
		if b.group += 4; b.group >= groups {
			b.group = 0
		}
		word := datasheet.IndexAt(b.bar[datasheet.MarkGroups+b.group:])
		for set := atomic.LoadUint32(word); set != 0; {
			k := bits.TrailingZeros32(set) / 8
			atomic.AndUint32(word, ^(uint32(0xff) << (8 * k)))
			set &^= 0xff << (8 * k)
			rang, err := b.lookGroup(b.group+k, &left)
			if any = any || rang; err != nil || left <= 0 {
				return true, err
			}
		}
	}
	return any, nil
}

func (b *bells) lookGroup(group int, left *int) (any bool, err error) {
	first := uint64(group) * datasheet.MarksPerGroup
	pages := uint64(len(b.bar)) / datasheet.PageSize
	for i := uint64(0); i < datasheet.MarksPerGroup; i += 4 {
		for marked := datasheet.TakeMarks(b.bar, datasheet.MarkBase+first+i); marked != 0; {
			k := bits.TrailingZeros32(marked) / 8
			marked &^= 0xff << (8 * k)
			for at := first + i + uint64(k); at < pages; at += datasheet.MarkCount {
				if g := b.pages[uint32(at)]; g != nil {
					rang, err := g.look()
					if any = any || rang; err != nil {
						return any, err
					}
				}
			}
			*left--
		}
	}
	return any, nil
}

// relay passes the doorbells of all parts of a NIC on.
type relay struct {
	turns atomic.Uint64
	wake  chan struct{}
	stop  context.CancelFunc
	ended sync.WaitGroup
}

func (r *relay) start(n *NIC) {
	r.wake = make(chan struct{}, 1)
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	r.ended.Go(func() { r.run(ctx, n) })
}

func (r *relay) end() {
	r.stop()
	r.ended.Wait()
}

func (r *relay) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *relay) run(ctx context.Context, n *NIC) {
	timer := time.NewTimer(noClients)
	defer timer.Stop()
	idle, sleeps := 0, 0
	for ctx.Err() == nil {
		r.turns.Add(1)
		parts := *n.parts.Load()
		if len(parts) == 0 || n.isBroken() {
			timer.Reset(noClients)
			select {
			case <-r.wake:
			case <-timer.C:
			case <-ctx.Done():
			}
			continue
		}
		if r.look(n, parts) {
			idle, sleeps = 0, 0
			continue
		}
		if idle++; idle < spinLooks {
			if idle%yieldEvery == 0 {
				runtime.Gosched()
			}
			continue
		}
		idle = spinLooks / 2
		d := longSleep
		if sleeps++; sleeps <= shortSleeps {
			d = shortSleep
		}
		t := unix.NsecToTimespec(d.Nanoseconds())
		_ = unix.Nanosleep(&t, nil) // a signal may cut it short, which does no harm
	}
}

// look gives each part a turn.
func (r *relay) look(n *NIC, parts []*Part) (any bool) {
	for _, p := range parts {
		var rang bool
		var err error
		if fault := buserror.Catch(func() { rang, err = p.bells.look() }); fault != nil {
			p.GiveUp() // the client has taken its own doorbells away
			continue
		}
		if err != nil {
			n.broken(err)
			return false
		}
		any = any || rang
	}
	return any
}

// clear makes the page of the marks, and all pages in use, read zero.
func (b *bells) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	used := []uint32{0}
	for number := range b.pages {
		used = append(used, number)
	}
	slices.Sort(used)
	for _, number := range used {
		at := uint64(number) * datasheet.PageSize
		for offset := uint64(0); offset < datasheet.PageSize; offset += 4 {
			atomic.StoreUint32(datasheet.IndexAt(b.bar[at+offset:]), 0)
		}
	}
	clear(b.pages)
}
