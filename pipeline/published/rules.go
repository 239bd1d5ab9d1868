package published

import (
	"strconv"
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

// Find returns the computation that a row stands for.
func Find(r Row) Computation {
	for _, f := range []func(Row) (Computation, bool){table1, single, notModelled} {
		if c, ok := f(r); ok {
			return c
		}
	}
	return Computation{Kind: NotModelled, What: "no rule for this row"}
}

// platformOf returns the profile that the condition's first part names.
func platformOf(condition string) (string, bool) {
	first, _, _ := strings.Cut(condition, ";")
	switch strings.ToLower(strings.TrimSpace(first)) {
	case "p6/natoma":
		return "p6-natoma", true
	case "pentium ii/440lx":
		return "pii-440lx", true
	case "alcor":
		return "alcor", true
	case "alcor to miata", "alcor/miata":
		return "alcor-miata", true
	}
	return "", false
}

// policyOf returns the policy and the pulse (0 = default) that a part of the
// condition names, such as "pure cut-through" or "static 1280".
func policyOf(part string) (policy string, pulse int, ok bool) {
	part = strings.ToLower(part)
	for _, w := range strings.FieldsFunc(part, func(c rune) bool { return c == ' ' || c == '=' || c == ',' }) {
		if n, err := strconv.Atoi(w); err == nil && n > 0 {
			pulse = n
		}
	}
	switch {
	case strings.Contains(part, "store"):
		return "store-and-forward", 0, true
	case strings.Contains(part, "pure"):
		return "pure-cut-through", pulse, true
	case strings.Contains(part, "static"):
		return "static", pulse, true
	case strings.Contains(part, "adaptive"), strings.Contains(part, "amp"):
		return "amp", pulse, true
	case strings.Contains(part, "eager"):
		return "eager", pulse, true
	case strings.Contains(part, "cut-through"):
		return "cut-through", pulse, true
	}
	return "", 0, false
}

// payloadOf reads "8K payload".
func payloadOf(part string) (bytes int, ok bool) {
	number, ok := strings.CutSuffix(strings.TrimSpace(part), "K payload")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(number)
	return n * 1024, err == nil && n > 0 && n <= 1024
}

// table1 recognises latencies and bandwidths by platform, payload and policy.
func table1(r Row) (Computation, bool) {
	platform, ok := platformOf(r.Condition)
	parts := strings.Split(r.Condition, ";")
	if !ok || len(parts) < 3 || !strings.Contains(r.Source, "Table 1") {
		return Computation{}, false
	}
	payload, ok := payloadOf(parts[1])
	if !ok {
		return Computation{}, false
	}
	policy, pulse, ok := policyOf(strings.Join(parts[2:], ";"))
	if !ok || pulse > payload {
		return Computation{}, false
	}
	what := platform + ", " + policy + ", " + strconv.Itoa(payload) + " B"
	switch {
	case r.Quantity == "one-way latency" && r.Unit == "us":
		return Computation{Kind: Predicted, What: "latency: " + what, Platform: platform, compute: func(m *Model) (float64, error) {
			return m.Latency(platform, policy, pulse, payload)
		}}, true
	case r.Quantity == "bandwidth" && r.Unit == "MB/s":
		return Computation{Kind: Predicted, What: "stream bandwidth: " + what, Platform: platform, compute: func(m *Model) (float64, error) {
			return m.Bandwidth(platform, policy, pulse, payload)
		}}, true
	}
	return Computation{}, false
}

// Compute returns the row's figure; it is 0 for a row that is not modelled.
func (c Computation) Compute(m *Model) (float64, error) {
	if c.compute == nil {
		return 0, nil
	}
	return c.compute(m)
}
