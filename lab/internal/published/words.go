package published

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// paper is the family of sources that a row belongs to.
type paper string

const (
	cs1997     paper = "CS-1997-20"
	cutThrough paper = "the cut-through paper"
	patent     paper = "the AMP patent"
	mini       paper = "MINI"
	edt        paper = "EDT"
	other      paper = ""
)

func paperOf(source string) paper {
	s := strings.ToLower(source)
	switch {
	case strings.Contains(s, "cs-1997"), strings.Contains(s, "1997-20"), strings.Contains(s, "balancing dma"):
		return cs1997
	case strings.Contains(s, "cut-through"), strings.Contains(s, "hpdc"):
		return cutThrough
	case strings.Contains(s, "patent"), strings.Contains(s, "6,308,228"), strings.Contains(s, "6308228"):
		return patent
	case strings.Contains(s, "mini"):
		return mini
	case strings.Contains(s, "edt"), strings.Contains(s, "sonic"):
		return edt
	}
	return other
}

// has reports whether text contains one of some words, each as a whole.
func has(text string, words ...string) bool {
	for _, w := range words {
		for at, from := -1, 0; ; from = at + 1 {
			if at = strings.Index(text[from:], w); at < 0 {
				break
			}
			at += from
			if !letter(text, at-1) && !letter(text, at+len(w)) {
				return true
			}
		}
	}
	return false
}

func letter(text string, i int) bool {
	return i >= 0 && i < len(text) && (text[i] >= 'a' && text[i] <= 'z' || text[i] >= '0' && text[i] <= '9')
}

// platformOf returns the profile that a text in lower case names, if there is one. The
// cut-through paper's Alcor has a profile of its own, and is all that paper measured.
func platformOf(text string, from paper) string {
	names := profile.Names()
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) })
	for _, n := range names { // the longest first: alcor-miata before alcor
		if n != alcor && has(text, n) {
			return n
		}
	}
	sender := strings.Index(text, "alcor")
	switch receiver := strings.Index(text, "miata"); {
	case receiver >= 0 && sender >= 0 && sender < receiver:
		return miata
	case receiver >= 0:
		return "" // the paper measured Miatas only as receivers
	case has(text, "440lx", "pentium ii", "pentium-ii", "pentium 2", "pii", "p-ii", "p2"):
		return pii
	case has(text, "p6", "natoma", "440fx", "pentium pro", "pentium-pro", "ppro"):
		return p6
	case from == cutThrough && !has(text, "pentium", "ethernet", "atm", "sparc"):
		return hpdc97
	case sender >= 0, has(text, "alphastation", "alpha 500"):
		return alcor
	}
	return ""
}

// policyNames are the words for policies; the first that a text has counts.
var policyNames = []struct {
	policy string
	words  []string
}{
	{"store-and-forward", []string{"store-and-forward", "store and forward", "store & forward", "store&forward", "s&f", "snf", "double buffering", "double-buffering", "multi-buffering", "multibuffering"}},
	{"pure-cut-through", []string{"pure-cut-through", "pure"}},
	{"amp", []string{"adaptive", "amp", "pipelining"}},
	{"eager", []string{"eager"}},
	{"static", []string{"static", "fixed", "cells", "cell"}},
	{"send-side", []string{"send-side", "pm"}},
	{"hierarchical", []string{"hierarchical"}},
	{"table", []string{"table", "bip"}},
	{"schedule", []string{"schedule", "variable"}},
	{"optimal", []string{"optimal"}},
	{"auto", []string{"auto"}},
}

// policyOf returns the policy that a text in lower case names, if it names one. A bare
// "cut-through" is what the paper means by it.
func policyOf(text string, from paper) string {
	for _, p := range policyNames {
		if has(text, p.words...) {
			return p.policy
		}
	}
	if !has(text, "cut-through", "cut through", "cutthrough") {
		return ""
	}
	switch from {
	case cs1997:
		return "pure-cut-through"
	case cutThrough:
		return "eager"
	}
	return "cut-through"
}

var (
	amount    = `(\d+(?:,\d{3})*(?:\.\d+)?)\s*-?\s*((?:kib|kb|kbytes?|k|mib|mb|mbytes?|m|bytes?|b)\b)?`
	payloads  = regexp.MustCompile(amount + `\s*-?\s*(?:payloads?|packets?|pages?|messages?|frames?|streams?|transfers?)\b|\b(?:payloads?|packets?|messages?|frames?)\s*(?:of|=|:|size)?\s*` + amount)
	kilobytes = regexp.MustCompile(`\b(\d+(?:\.\d+)?)\s*-?\s*(kib|kb|kbytes?|k)\b`)
	pulses    = regexp.MustCompile(`\b(send|sender|sending|tx|nettx|recv|rcv|receive|receiver|receiving|hostrcv)?[\s-]*(minpulse|threshold|pulses?|fragments?|cells?)(?:[\s-]*(send|recv|receive|tx|rcv))?\s*(?:of|=|:|size)?\s*` + amount + `\b`)
	before    = regexp.MustCompile(amount + `[\s-]*(minpulse|threshold|pulses?|fragments?|cells?)\b`)
	plain     = regexp.MustCompile(`\b(\d+(?:,\d{3})*)\s*-?\s*(?:bytes?|b)\b`)
	statics   = regexp.MustCompile(`\b(?:static|fixed|eager|cut-through)\s+` + amount + `(?:$|[\s;,])`)
)

// unusable stands for a number of bytes that is named and is none to compute with:
// zero, part of a byte, or more than a frame may have.
const unusable = -1

// bytesOf reads a number and its unit: 0 if there is none, or unusable.
func bytesOf(number, unit string) int {
	if number == "" {
		return 0
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(number, ",", ""), 64)
	switch {
	case strings.HasPrefix(unit, "k"):
		n *= 1 << 10
	case strings.HasPrefix(unit, "m"):
		n *= 1 << 20
	}
	if err != nil || n < 1 || n > pipeline.MaxFrame || n != math.Trunc(n) {
		return unusable
	}
	return int(n)
}

// thresholdsOf returns the pulses or thresholds that a text in lower case names, and the
// text without them. 0 stands for one that is not named.
func thresholdsOf(text string) (send, receive int, rest string) {
	set := func(side string, n int) {
		switch {
		case n == 0:
		case has(side, "send", "sender", "sending", "tx", "nettx"):
			send = n
		case has(side, "recv", "rcv", "receive", "receiver", "receiving", "hostrcv"):
			receive = n
		default:
			send, receive = n, n
		}
	}
	rest = pulses.ReplaceAllStringFunc(text, func(m string) string {
		g := pulses.FindStringSubmatch(m)
		set(g[1]+" "+g[3], bytesOf(g[4], g[5]))
		return " " + g[2] + " "
	})
	rest = before.ReplaceAllStringFunc(rest, func(m string) string {
		g := before.FindStringSubmatch(m)
		set("", bytesOf(g[1], g[2]))
		return " " + g[3] + " "
	})
	if send == 0 && receive == 0 {
		if g := statics.FindStringSubmatch(rest); g != nil && (g[2] == "" || g[2][0] == 'b') {
			set("", bytesOf(g[1], g[2]))
		}
	}
	return send, receive, rest
}

// payloadOf returns the payload that a text in lower case names, such as "8K payload",
// "8192-byte packets" or just "8KB"; 0 if it names none.
func payloadOf(text string) int {
	if g := payloads.FindStringSubmatch(text); g != nil {
		return cmp.Or(bytesOf(g[1], g[2]), bytesOf(g[3], g[4]))
	}
	if g := kilobytes.FindStringSubmatch(text); g != nil {
		return bytesOf(g[1], g[2])
	}
	return 0
}

// units that a computed time (in us) or rate (in MB/s) can be stated in.
var (
	timeUnits = map[string]float64{"us": 1, "usec": 1, "usecs": 1, "µs": 1, "μs": 1, "microseconds": 1, "ns": 1e3, "nsec": 1e3, "ms": 1e-3, "msec": 1e-3, "s": 1e-6, "seconds": 1e-6}
	rateUnits = map[string]float64{"mb/s": 1, "mbytes/s": 1, "mbyte/s": 1, "mbytes/sec": 1, "mb/sec": 1, "gb/s": 1e-3, "gbytes/s": 1e-3, "kb/s": 1e3, "kbytes/s": 1e3,
		"mbit/s": 8, "mbits/s": 8, "mbps": 8, "gbit/s": 8e-3, "gbits/s": 8e-3, "gbps": 8e-3}
)

// isTime and isRate return by what a computed time or rate is multiplied to be in a
// row's unit. Of "Gb/s" and "Mb/s" the case tells bits from bytes.
func isTime(unit string) (float64, bool) {
	f, ok := timeUnits[strings.ToLower(strings.TrimSpace(unit))]
	return f, ok
}

func isRate(unit string) (float64, bool) {
	unit = strings.TrimSpace(unit)
	switch {
	case strings.HasPrefix(unit, "Mb/s"):
		return 8, true
	case strings.HasPrefix(unit, "Gb/s"):
		return 8e-3, true
	}
	f, ok := rateUnits[strings.ToLower(unit)]
	return f, ok
}
