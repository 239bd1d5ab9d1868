package conform

import (
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/via"
)

// testChannelOrder has messages of both priorities under way on one channel: each arrives whole, as
// AAL5 cannot tell the cells of two apart, and those of a priority in their order.
func testChannelOrder(w *World) {
	x, y := w.channels(channel.Options{PageSize: 16384})
	const rounds = 12
	words := [2]int{channel.High: 5, channel.Low: 90}
	priority := map[uint64]channel.Priority{} // by number
	for round := range rounds {
		for _, p := range []channel.Priority{channel.Low, channel.High} {
			start := (2*round + int(p)) * 100
			w.sendWords(x, p, start, x.SendPages().Put(start, w.words(words[p])))
			priority[w.number] = p
		}
	}
	var last [2]uint64
	got := 0
	for m := range w.pdus(y, len(words)*rounds) {
		got++
		b := readPDU(y, m)
		n := numberOf(b)
		p, sent := priority[n]
		if !sent || len(b) != words[p]*channel.Word {
			w.Errorf("message %d has %d bytes, want %d words", n, len(b), words[p])
		}
		if n <= last[p] {
			w.Errorf("message %d came after %d", n, last[p])
		}
		last[p] = n
		w.releasePDU(y, m)
	}
	if got < len(words)*rounds && !w.losing.Load() {
		w.Errorf("%d messages came", got)
	}
}

// testChannelUrgent sends an urgent message on one channel while bulk of another one is under way:
// it goes before what is left of that. A NIC whose doorbells are trapped may have sent all of the
// bulk before the urgent message is posted: then there is nothing to be seen here.
func testChannelUrgent(w *World) {
	o := channel.Options{PageSize: 16384}
	clients, servers := w.Channels(2, o, o)
	bulk, urgent := clients[0], clients[1]
	const words = 200
	size := 206 // with padding, trailer, CRC and clock
	overtook := 0
	for range 20 {
		w.allowWords(servers[0], 0, servers[0].Words()-1)
		for i := range channel.Depth {
			w.sendWords(bulk, channel.Low, i*size, bulk.SendPages().Put(i*size, w.words(words)))
		}
		want := w.words(5)
		w.sendWords(urgent, channel.High, 0, urgent.SendPages().Put(0, want))
		sent, err := bulk.Sent(channel.Low)
		OK(w, err)
		m, there := w.takePDU(servers[1], want)
		if there {
			w.releasePDU(servers[1], m)
		}
		var end time.Duration
		whole := 0
		for b := range w.pdus(servers[0], channel.Depth) {
			end = b.Stamp
			whole++
		}
		OK(w, bulk.Flush(Context(w)))
		// Of what had not left then, some was sent behind the urgent one.
		if there && whole == channel.Depth && sent.Taken-sent.Left >= 4 {
			overtook++
			if m.Stamp > end {
				w.Errorf("the urgent message came at %v, the last of the bulk at %v: %d messages of it had not left", m.Stamp, end, sent.Taken-sent.Left)
			}
		}
	}
	if overtook == 0 && !w.losing.Load() {
		w.Skip("the bulk left as fast as it was posted: there was nothing that an urgent message could go before")
	}
}

// testChannelSenders has several goroutines send on one channel, more than its doorbells hold.
func testChannelSenders(w *World) {
	const senders, each = 4, 25 // all together they have room
	x, y := w.channels(channel.Options{})
	ctx := Context(w)
	numbers := make([][]byte, senders*each)
	for i := range numbers {
		numbers[i] = w.words(1)
		x.SendPages().Put(i, numbers[i])
	}
	first := numberOf(numbers[0])
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for i := s * each; i < (s+1)*each; i++ {
				err := error(via.ErrQueueFull)
				for err == via.ErrQueueFull && ctx.Err() == nil {
					if err = x.Send(channel.Priority(s%2), i, i+1); err == via.ErrQueueFull {
						w.A.Poll()
					}
				}
				if err != nil {
					w.Error(err)
					return
				}
			}
		})
	}
	var next [senders]uint64
	got := 0
	for m := range w.pdus(y, len(numbers)) {
		got++
		i := numberOf(readPDU(y, m)) - first
		s, n := i/each, i%each
		if s >= senders || n < next[s] || n > next[s] && !w.lost() {
			w.Fatalf("message %d, want one of %v", i, next)
		}
		next[s] = n + 1
		w.releasePDU(y, m)
	}
	all.Wait()
	if got < len(numbers) && !w.losing.Load() {
		w.Errorf("%d messages came", got)
	}
	for p := range channel.Priority(2) {
		if sent, err := x.Sent(p); sent.Taken != senders/2*each || err != nil || sent.Taken-sent.Left > channel.Depth {
			w.Errorf("priority %d: %d of %d have left, %v", p, sent.Left, sent.Taken, err)
		}
	}
}
