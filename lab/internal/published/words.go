package published

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// platformWords are the papers' names of platforms, the longest first.
var platformWords = [][2]string{
	{"alcor to miata", "alcor-miata"}, {"alcor/miata", "alcor-miata"}, {"pentium ii", "pii-440lx"}, {"440lx", "pii-440lx"},
	{"p6", "p6-natoma"}, {"natoma", "p6-natoma"}, {"pentium pro", "p6-natoma"}, {"alphastation", "alcor"}, {"alcor", "alcor"},
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

var (
	sizes = regexp.MustCompile(`\b(\d+(?:\.\d+)?) ?-?(k|kb|kib|kbytes?|b|bytes?)\b`)
	// thousands are written "1,280".
	thousands = regexp.MustCompile(`\b(\d{1,3}),(\d{3})\b`)
	// thresholds are written "minpulse 128", "a pulse of 1280 bytes" or "1280-byte pulses", of one side or of both.
	thresholds = regexp.MustCompile(`(?:\b(send|sender|nettx|receive|receiver|hostrcv) )?(?:\b(?:min)?(?:pulse|threshold)s?(?: size)?(?: of|:)?[ =]*(\d+)(?:[ -]?(?:bytes?|b))?\b|\b(\d+)[ -](?:bytes?|b) (?:min)?(?:pulse|threshold)s?\b)`)
	// spellings of the same words.
	spellings = strings.NewReplacer("store & forward", "store and forward", "cut through", "cut-through", "round-trip", "round trip", "speed-up", "speedup", "inter-packet", "packet")
)

// plain is a text in small letters and in one spelling.
func plain(text string) string {
	return thousands.ReplaceAllString(spellings.Replace(strings.ToLower(text)), "$1$2")
}

// described says what to compute for a row whose words name platform, policy, payload and
// figure. Of a row that does not, the note says what is missing.
func described(r *Row) Task {
	text, source := plain(r.Condition+"; "+r.Quantity), strings.ToLower(r.Source)
	switch {
	case wordIn(source, "mini"):
		return describedCells(r, text)
	case wordIn(source, "edt") || systemIn(text) != "":
		return describedTransfer(r, text)
	}
	t := Task{Compute: figureIn(r)}
	t.Policy = policyIn(text, source, comparing(t.Compute))
	logged := strings.HasSuffix(t.Compute, ofLoggedFrame)
	if !logged {
		text = t.thresholdsIn(text)
	}
	payload, others := payloadIn(text)
	t.Payload = payload
	platform := platformIn(text, source)
	if logged {
		// Figures 4 and 5 are of one platform, payload and policy.
		platform, t.Policy, t.Payload = cmp.Or(platform, loggedPlatform), "", cmp.Or(payload, loggedPayload)
	}
	c := computations[t.Compute]
	switch {
	case platform == "":
		return Task{Note: "names no platform that has a profile: " + strings.Join(profile.Hosts.Names(), ", ")}
	case t.Compute == "":
		return Task{Note: fmt.Sprintf("its quantity and its unit %q name no latency, bandwidth or reduction of latency, and no time of a transfer", r.Unit)}
	case t.Policy == "" && c.needs&policy != 0:
		return Task{Note: "names no delivery policy: " + strings.Join(pipeline.PolicyNames(), ", ")}
	case t.Payload == 0:
		return Task{Note: fmt.Sprintf("names no payload of 1 to %d bytes", maxPayload)}
	case others:
		return Task{Note: "names more than one number of bytes; the columns send_pulse and receive_pulse say which is a threshold"}
	case max(t.Send, t.Receive) > t.Payload:
		return Task{Note: fmt.Sprintf("names a threshold above the payload of %d bytes", t.Payload)}
	}
	t.Platforms = []string{platform}
	return t
}

// thresholdsIn takes the thresholds out of a text.
func (t *Task) thresholdsIn(text string) (rest string) {
	return thresholds.ReplaceAllStringFunc(text, func(found string) string {
		m := thresholds.FindStringSubmatch(found)
		n, err := strconv.Atoi(m[2] + m[3])
		if err != nil || n < 1 {
			return found
		}
		if !strings.HasPrefix(m[1], "rec") && m[1] != "hostrcv" {
			t.Send = n
		}
		if !strings.HasPrefix(m[1], "send") && m[1] != "nettx" {
			t.Receive = n
		}
		return ""
	})
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

// wordsIn reports whether a text has one of some words.
func wordsIn(text string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return wordIn(text, w) })
}

func goesOn(text string, i int) bool {
	return i >= 0 && i < len(text) && (text[i] == '-' || text[i] >= '0' && text[i] <= '9' || text[i] >= 'a' && text[i] <= 'z')
}

// platformIn finds a platform: by the name of its profile, or as the papers call it.
func platformIn(text, source string) string {
	for _, name := range profile.Hosts.Names() {
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

// policyIn finds a policy. A bare "cut-through" has the meaning that its paper gives it. A figure that
// compares is that of what is compared with store and forward.
func policyIn(text, source string, compares bool) string {
	const whole = "store-and-forward"
	if compares {
		text = strings.ReplaceAll(strings.ReplaceAll(text, whole, ""), "store and forward", "")
	}
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
		v, err := strconv.ParseFloat(m[1], 64)
		if m[2][0] == 'k' {
			v *= 1024
		}
		if err != nil || v < 1 || v > maxPayload || v != math.Trunc(v) {
			return 0, false
		}
		n := int(v)
		others = others || bytes != 0 && n != bytes
		bytes = n
	}
	return bytes, others
}

// comparing reports whether a computation is of a policy beside store and forward.
func comparing(compute string) bool {
	_, found := comparisons()[compute]
	return found && !strings.Contains(compute, "packet") || strings.HasPrefix(compute, "reduction")
}

// figureIn finds the computation that a quantity and its unit name.
func figureIn(r *Row) string {
	quantity, text, in := plain(r.Quantity), plain(r.Quantity+"; "+r.Condition), wordsIn
	has := func(words ...string) bool { return in(quantity, words...) }
	dimension := units[r.Unit].dimension
	for e := range dmalog.Engines {
		if !has(strings.ToLower(e.String())) {
			continue
		}
		switch {
		case dimension == count:
			return e.String() + " transfers of a packet"
		case dimension == size:
			return cmp.Or(pulseIn(quantity, e), pulseIn(text, e))
		case dimension&(duration|rate) != 0 && e != dmalog.NetRcv && !in(text, "contention", "copy"):
			return e.String()
		}
	}
	best := in(text, "best", "optimal", "optimum") && in(text, "static", "fixed")
	switch {
	case has("contention", "fault", "tcp", "ip", "udp"), has("logging") && dimension != rate:
		return ""
	case dimension == rate && in(text, "logging", "logged", "log") && !in(text, "without", "no"):
		return "stream bandwidth with the log"
	case dimension == percent && has("reduction", "improvement", "gain", "loss", "lower", "less", "faster", "saving"):
		switch {
		case has("bandwidth", "throughput"):
			return "reduction of bandwidth"
		case best && in(text, "eager", "amp", "adaptive", "auto"):
			return "reduction against the best static pulse"
		case best:
			return "reduction of latency at the best pulse"
		}
		return "reduction of latency"
	case dimension == ratio && has("speedup"):
		return "speedup"
	case dimension&(ratio|percent) != 0 && has("relative", "ratio", "over", "share", "fraction", "divided"):
		switch {
		case has("bandwidth", "throughput"):
			return "bandwidth over that of store and forward"
		case has("latency", "one-way"):
			return "latency over that of store and forward"
		}
	case dimension == duration && has("saved", "saving", "difference", "less", "reduction"):
		return "latency saved"
	case dimension == duration && has("gap", "interval", "period", "between"):
		return "time between packets"
	case dimension == duration && has("round trip"):
		return "twice the latency"
	case dimension == duration && has("fetch"):
		return "page fetch"
	case dimension == duration && has("latency", "one-way", "delivery"):
		if best {
			return "latency at the best pulse"
		}
		return "latency"
	case dimension == rate && has("bidirectional"):
		return "bandwidth of two streams"
	case dimension == rate && has("difference", "lost", "loss"):
		return "bandwidth lost"
	case dimension == rate && has("bandwidth", "throughput"):
		return "stream bandwidth"
	case dimension == size && has("best", "optimal", "near-optimal") && has("pulse", "minpulse", "threshold", "pulse size"):
		if in(text, "static", "fixed") {
			return "middle of the near-optimal pulses"
		}
		return "best threshold"
	}
	return ""
}

// pulseIn finds which transfer of an engine a quantity is about: "first netTx pulse", "netTx pulse 2".
func pulseIn(quantity string, e dmalog.Engine) string {
	near := regexp.MustCompile(`\b(first|second|third|fourth|fifth|sixth) (?:` + strings.ToLower(e.String()) + `|pulse|transfer)\b`)
	if m := near.FindStringSubmatch(quantity); m != nil {
		quantity = m[1]
	}
	for i, o := range ordinals {
		if wordIn(quantity, o) || wordIn(quantity, strconv.Itoa(i+1)) || wordIn(quantity, fmt.Sprintf("#%d", i+1)) {
			if name := pulseOf(o, e); computations[name].of != nil {
				return name
			}
		}
	}
	return ""
}
