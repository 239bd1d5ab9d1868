package published

import (
	"fmt"
	"strings"
)

// Kind says what a computed figure is worth.
type Kind string

// Kinds of rows.
const (
	Predicted   Kind = "computed"     // comes out of a run in virtual time
	Input       Kind = "input"        // a cost that the profile states; shown for completeness
	NotModelled Kind = "not modelled" // no computation stands for it
)

// Computation is what a row stands for.
type Computation struct {
	Kind    Kind
	What    string // in words, or why it is not modelled
	compute func(m *Model) (float64, error)

	// Platform is the one profile that the figure depends on, for rows to which
	// parameters may be fitted; empty for others.
	Platform string
}

// Find returns the computation that a row stands for, from its words: source,
// quantity, condition and unit. Its id and its value take no part. Figures that the
// papers mention once are known one by one; latencies, bandwidths, reductions and
// transfers of any platform, payload and policy are recognised. Of the rest it says why
// the model does not give it.
func Find(r Row) Computation {
	w := wordsOf(r)
	for _, f := range []func(*words) (Computation, bool){single, excluded, described} {
		if c, ok := f(w); ok {
			return c
		}
	}
	return Computation{Kind: NotModelled, What: w.missing()}
}

// words are a row's words in lower case, and what they name.
type words struct {
	Row
	quantity, condition string
	text                string // both
	paper               paper

	platform, policy    string // empty if they name none
	payload, send, recv int    // bytes, 0 if not named, or unusable
	best                bool   // of several pulses
	both                bool   // directions at once
	there               bool   // and back
}

func wordsOf(r Row) *words {
	w := &words{Row: r, paper: paperOf(r.Source), quantity: strings.ToLower(r.Quantity), condition: strings.ToLower(r.Condition)}
	w.text = w.quantity + "; " + w.condition
	rest := ""
	w.send, w.recv, rest = thresholdsOf(w.text)
	w.platform = platformOf(w.text, w.paper)
	w.policy = policyOf(w.text, w.paper)
	if w.platform == "" && w.paper == cs1997 && engineOf(w.quantity) != noEngine && has(strings.ToLower(r.Source), "fig3", "fig4", "fig5", "fig 3", "fig 4", "fig 5") {
		w.platform = p6 // where these figures were taken
	}
	w.payload = payloadOf(rest)
	w.best = has(w.text, "best", "optimal") && w.policy == "static" || has(w.text, "best static", "optimal static", "optimal fixed", "near-optimal")
	w.both = has(w.text, "bidirectional", "both directions at once", "two-way stream")
	w.there = has(w.text, "round trip", "round-trip", "ping-pong", "rtt")
	return w
}

// described recognises figures of any platform, payload and policy.
func described(w *words) (Computation, bool) {
	_, timed := isTime(w.Unit)
	_, rated := isRate(w.Unit)
	switch {
	case w.platform == "":
		return Computation{}, false
	case engineOf(w.quantity) != noEngine && (timed || rated):
		return w.transfer()
	case w.policy == "":
		return Computation{}, false
	case w.payload == 0:
		w.payload = page // the size that both papers use where they name none
	}
	if min(w.payload, w.send, w.recv) == unusable || w.payload > maxDescribed || w.send > w.payload || w.recv > w.payload {
		return Computation{}, false
	}
	switch {
	case w.Unit == "%" && has(w.quantity, "reduction", "improvement", "better", "faster", "saving"):
		return w.reduction(), true
	case timed && !has(w.quantity, "gap", "overhead", "interval") && has(w.quantity, "latency", "time", "one-way", "delivery", "transfer", "delay", "round trip", "rtt"):
		return w.latency(), true
	case rated && has(w.quantity, "bandwidth", "throughput", "rate"):
		return w.bandwidth(), true
	}
	return Computation{}, false
}

// maxDescribed is the longest payload that is computed for a row, in bytes.
const maxDescribed = 1 << 20

func (w *words) what(figure string) string {
	s := fmt.Sprintf("%s: %s, %s, %d B", figure, w.platform, w.policy, w.payload)
	switch {
	case w.best:
		s += ", pulse at its best"
	case w.send > 0 || w.recv > 0:
		s += fmt.Sprintf(", thresholds %s and %s", threshold(w.send), threshold(w.recv))
	}
	return s
}

func threshold(n int) string {
	if n == 0 {
		return "default"
	}
	return fmt.Sprint(n, " B")
}

func (w *words) latency() Computation {
	scale, _ := isTime(w.Unit)
	figure := "latency"
	if w.there {
		scale *= 2
		figure = "twice the latency"
	}
	return Computation{Kind: Predicted, What: w.what(figure), Platform: w.platform, compute: func(m *Model) (float64, error) {
		l, err := w.modelled(m)
		return l * scale, err
	}}
}

// modelled is the latency of the row's policy.
func (w *words) modelled(m *Model) (float64, error) {
	if w.best {
		_, l, err := m.Best(w.platform, w.policy, w.payload, min(128, w.payload), min(w.payload, 4096), 128)
		return l, err
	}
	return m.Latency(w.platform, w.policy, w.send, w.recv, w.payload)
}

func (w *words) bandwidth() Computation {
	scale, _ := isRate(w.Unit)
	figure := "stream bandwidth"
	if w.both {
		figure = "bandwidth of two streams"
	}
	return Computation{Kind: Predicted, What: w.what(figure), Platform: w.platform, compute: func(m *Model) (float64, error) {
		b, err := m.Bandwidth(w.platform, w.policy, w.send, w.recv, w.payload, w.both)
		return b * scale, err
	}}
}

// reduction of latency against store and forward, in percent.
func (w *words) reduction() Computation {
	return Computation{Kind: Predicted, What: w.what("reduction of latency"), compute: func(m *Model) (float64, error) {
		whole, err := m.Latency(w.platform, "store-and-forward", 0, 0, w.payload)
		if err != nil {
			return 0, err
		}
		l, err := w.modelled(m)
		return 100 * (1 - l/whole), err
	}}
}

// Compute returns the row's figure; it is 0 for a row that is not modelled.
func (c Computation) Compute(m *Model) (float64, error) {
	if c.compute == nil {
		return 0, nil
	}
	return c.compute(m)
}
