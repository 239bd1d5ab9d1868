package published

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// engine is one of those that move payloads.
type engine int

const (
	noEngine engine = iota
	hostTx
	hostRcv
	netTx
	bus // either host transfer
)

// engineOf returns the engine whose single transfers or whose bandwidth a quantity is
// about.
func engineOf(quantity string) engine {
	switch {
	case has(quantity, "hosttx", "dma read"):
		return hostTx
	case has(quantity, "hostrcv", "dma write"):
		return hostRcv
	case has(quantity, "nettx", "netrcv"):
		return netTx
	case has(quantity, "dma bandwidth", "bus bandwidth", "pci bandwidth"):
		return bus
	}
	return noEngine
}

// transfer is the time or the bandwidth of one transfer. The time of a transfer whose
// size is not stated is that of a whole payload.
func (w *words) transfer() (Computation, bool) {
	e := engineOf(w.quantity)
	toTime, timed := isTime(w.Unit)
	toRate, _ := isRate(w.Unit)
	bytes, stated := sizeOf(w)
	switch {
	case timed && !has(w.quantity, "duration", "time", "takes", "length", "latency"), e == bus && (timed || !stated):
		return Computation{}, false // when it begins, or what the bus carries at most
	case bytes == unusable || bytes > maxDescribed:
		return Computation{}, false
	}
	name := map[engine]string{hostTx: "hostTx", hostRcv: "hostRcv", netTx: "netTx", bus: "bus read"}[e]
	what := "time"
	if !timed {
		what = "bandwidth"
	}
	return Computation{Kind: Predicted, What: fmt.Sprintf("%s of a %s of %d B, %s", what, name, bytes, w.platform), compute: func(m *Model) (float64, error) {
		p, err := m.Platform(w.platform)
		if err != nil {
			return 0, err
		}
		us := costOf(e, p).Transfer(bytes).Microseconds()
		if timed {
			return us * toTime, nil
		}
		return float64(bytes) / us * toRate, nil
	}}, true
}

// sizeOf returns the bytes of the transfer that a row is about.
func sizeOf(w *words) (bytes int, stated bool) {
	if g := plain.FindStringSubmatch(w.text); g != nil {
		if n := bytesOf(g[1], ""); n != 0 {
			return n, true
		}
	}
	if w.payload != 0 {
		return w.payload, true
	}
	return page, false
}

func costOf(e engine, p *profile.Profile) profile.Cost {
	switch e {
	case hostRcv:
		return p.Receiver.Write
	case netTx:
		return p.Link.Pulse
	}
	return p.Sender.Read
}
