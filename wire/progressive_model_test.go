package wire_test

import (
	"bytes"
	"runtime"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestPartsAreAQueue compares a wire with a list of frames that grow.
func TestPartsAreAQueue(t *testing.T) {
	type frame struct {
		bytes   []byte
		shown   int
		aborted bool
		parts   bool
	}
	const addresses = datasheet.EthernetHeaderSize // without them a switch has nowhere to go
	check := func(t *rapid.T, a, b progressivePort, mtu int) {
		var queue []*frame // shown to the other end
		var batch []*frame // committed
		var open *frame    // being written
		var buf []byte
		number := byte(0)
		end := func(aborted bool) {
			if open != nil {
				open.aborted, open = aborted && open.parts, nil
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				end(true)
				n := rapid.IntRange(addresses, mtu).Draw(t, "size")
				if buf = a.Reserve(n); buf != nil {
					number++
					open = &frame{bytes: toAll(bytes.Repeat([]byte{number}, n))}
				}
			},
			"publish": func(t *rapid.T) {
				if open == nil {
					return
				}
				n := rapid.IntRange(addresses, len(open.bytes)).Draw(t, "shown")
				copy(buf[:n], open.bytes)
				a.Publish(n)
				if !open.parts {
					queue, batch = append(append(queue, batch...), open), nil
					open.parts = true
				}
				open.shown = max(open.shown, n)
			},
			"commit": func(*rapid.T) {
				if open != nil {
					copy(buf, open.bytes)
					open.shown = len(open.bytes)
					if !open.parts {
						batch = append(batch, open)
					}
				}
				a.Commit()
				end(false)
			},
			"abort": func(*rapid.T) { a.Abort(); end(true) },
			"flush": func(*rapid.T) {
				a.Flush()
				queue, batch = append(queue, batch...), nil
			},
			"receive": func(t *rapid.T) {
				got := b.Receive()
				n, aborted := b.Arrived()
				for len(queue) > 0 && queue[0].aborted && (got == nil || !aborted) {
					// A wire may leave out what was given up before it was seen.
					queue = queue[1:]
				}
				if len(queue) == 0 {
					must.Be(t, got != nil, false, "a frame that was not sent")
					return
				}
				want := queue[0]
				if len(got) != len(want.bytes) || n != want.shown || aborted != want.aborted || !bytes.Equal(got[:n], want.bytes[:n]) {
					t.Fatalf("%d of %d bytes, aborted %v; want %d of %d, %v", n, len(got), aborted, want.shown, len(want.bytes), want.aborted)
				}
				if rapid.Bool().Draw(t, "release") {
					b.Release()
					queue = queue[1:]
				}
			},
		})
	}
	progressiveEnds(t, func(t *testing.T, a, b progressivePort) {
		rapid.Check(t, func(t *rapid.T) {
			// What the test before this one has left.
			a.Abort()
			a.Flush()
			for i := 0; i < 1000; i++ {
				if b.Receive() != nil {
					b.Release()
				}
			}
			check(t, a, b, 700)
		})
	})
}

// TestPartsBetweenThreads has frames grow while the other end reads them.
func TestPartsBetweenThreads(t *testing.T) {
	progressiveEnds(t, func(t *testing.T, a, b progressivePort) {
		const frames, step = 2000, 100
		if a == b {
			t.Skip("a loop is used by one goroutine")
		}
		var sender sync.WaitGroup
		defer sender.Wait()
		sender.Go(func() {
			for i := 0; i < frames; {
				f := toAll(bytes.Repeat([]byte{byte(i)}, 64+i*37%4000))
				buf := a.Reserve(len(f))
				if buf == nil {
					runtime.Gosched()
					continue
				}
				for at := 0; at+step < len(f); at += step {
					copy(buf[at:at+step], f[at:])
					a.Publish(at + step)
				}
				rest := (len(f) - 1) / step * step
				copy(buf[rest:], f[rest:])
				a.Commit()
				a.Flush() // of frames that fit one step
				i++
			}
		})
		for i := range frames {
			f := await(t, b)
			for at := 0; at < len(f); {
				n, aborted := b.Arrived()
				must.Be(t, aborted, false, "frame %d was given up", i)
				for ; at < n; at++ {
					if at >= 2*len(datasheet.MAC{}) && f[at] != byte(i) {
						t.Fatalf("frame %d is damaged at %d of %d bytes", i, at, len(f))
					}
				}
				runtime.Gosched()
			}
			b.Release()
		}
	})
}
