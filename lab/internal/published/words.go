package published

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// platformWords are the papers' names of platforms, the longest first.
var platformWords = [][2]string{
	{"alcor to miata", "alcor-miata"}, {"alcor/miata", "alcor-miata"}, {"pentium ii", "pii-440lx"}, {"440lx", "pii-440lx"},
	{"p6", "p6-natoma"}, {"natoma", "p6-natoma"}, {"alphastation", "alcor"}, {"alcor", "alcor"},
}

// policyWords are the papers' names of policies beside those of the catalogue. Those of one
// buffer go first, as "cut-through" alone has a meaning in each paper.
var policyWords = [][2]string{
	{"store and forward", "store-and-forward"}, {"pure cut-through", "pure-cut-through"}, {"adaptive", "amp"},
	{"eager", "eager"}, {"static", "static"}, {"fixed", "static"},
}

// earlier is the profile of the cut-through paper, and its words in a source.
const (
	earlier      = "alcor-hpdc97"
	earlierPaper = "cut-through paper"
)

var sizes = regexp.MustCompile(`\b(\d+) ?-?(k|kb|kib|b|bytes?)\b`)

// described says what to compute for a row whose words name platform, policy, payload and
// figure. Of a row that does not, the note says what is missing.
func described(r *Row) Task {
	text := strings.ToLower(r.Condition + "; " + r.Quantity)
	t := Task{Policy: policyIn(text, strings.ToLower(r.Source)), Compute: figureIn(r)}
	payload, others := payloadIn(text)
	t.Payload = payload
	platform := platformIn(text, strings.ToLower(r.Source))
	switch {
	case platform == "":
		return Task{Note: "names no platform that has a profile: " + strings.Join(profile.Names(), ", ")}
	case t.Compute == "":
		return Task{Note: fmt.Sprintf("its quantity and its unit %q name no latency, bandwidth or reduction of latency, and no time of a transfer", r.Unit)}
	case t.Policy == "" && computations[t.Compute].needs&policy != 0:
		return Task{Note: "names no delivery policy: " + strings.Join(pipeline.PolicyNames(), ", ")}
	case payload == 0:
		return Task{Note: fmt.Sprintf("names no payload of 1 to %d bytes", maxPayload)}
	case others:
		return Task{Note: "names more than one number of bytes; the columns send_pulse and receive_pulse say which is a threshold"}
	}
	t.Platforms = []string{platform}
	return t
}

// named returns what the first of some pairs stands for whose words a text has.
func named(text string, pairs [][2]string) string {
	for _, p := range pairs {
		if wordIn(text, p[0]) {
			return p[1]
		}
	}
	return ""
}

// wordIn reports whether a text has a word that no letter, digit or hyphen goes on.
func wordIn(text, word string) bool {
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		begin := from + i
		end := begin + len(word)
		if !goesOn(text, begin-1) && !goesOn(text, end) {
			return true
		}
		from = end
	}
}

func goesOn(text string, i int) bool {
	return i >= 0 && i < len(text) && (text[i] == '-' || text[i] >= '0' && text[i] <= '9' || text[i] >= 'a' && text[i] <= 'z')
}

// platformIn finds a platform: by the name of its profile, or as the papers call it.
func platformIn(text, source string) string {
	for _, name := range profile.Names() {
		if name != "alcor" && wordIn(text, name) {
			return name
		}
	}
	found := named(text, platformWords)
	if found == "alcor" && strings.Contains(source, earlierPaper) {
		return earlier
	}
	return found
}

// policyIn finds a policy. A bare "cut-through" has the meaning that its paper gives it.
func policyIn(text, source string) string {
	if found := named(text, policyWords); found != "" {
		return found
	}
	for _, name := range pipeline.PolicyNames() {
		if name != "cut-through" && wordIn(text, name) {
			return name
		}
	}
	switch {
	case !wordIn(text, "cut-through"):
		return ""
	case strings.Contains(source, earlierPaper):
		return "eager"
	case strings.Contains(source, "cs-1997-20"):
		return "pure-cut-through"
	}
	return "cut-through"
}

// payloadIn finds the one number of bytes that a text has, 0 if none is in range, and says
// whether there are others.
func payloadIn(text string) (bytes int, others bool) {
	for _, m := range sizes.FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(m[1])
		if m[2][0] == 'k' {
			n *= 1024
		}
		if err != nil || n < 1 || n > maxPayload {
			return 0, false
		}
		others = others || bytes != 0 && n != bytes
		bytes = n
	}
	return bytes, others
}

// figureIn finds the computation that a quantity and its unit name.
func figureIn(r *Row) string {
	quantity := strings.ToLower(r.Quantity)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return wordIn(quantity, w) })
	}
	dimension := units[r.Unit].dimension
	for _, engine := range []string{"hostTx", "netTx", "hostRcv"} {
		if has(strings.ToLower(engine)) && dimension&(duration|rate) != 0 {
			return engine
		}
	}
	switch {
	case has("logging", "gap", "contention", "fault", "tcp", "ip"):
		return ""
	case dimension == percent && has("reduction", "improvement"):
		return "reduction of latency"
	case dimension == duration && has("round trip", "round-trip"):
		return "twice the latency"
	case dimension == duration && has("fetch"):
		return "page fetch"
	case dimension == duration && has("latency", "one-way"):
		return "latency"
	case dimension == rate && has("bidirectional"):
		return "bandwidth of two streams"
	case dimension == rate && has("bandwidth", "throughput"):
		return "stream bandwidth"
	}
	return ""
}
