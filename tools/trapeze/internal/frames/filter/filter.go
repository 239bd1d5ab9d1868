// Package filter has a language that says which frames are meant: a part of tcpdump's
// (pcap-filter(7)), with the same words and precedence. Unlike there, what stands behind
// VLAN tags is looked at whether the expression says vlan or not, IPv6 extension headers
// are followed, and names are not looked up.
package filter

import (
	"fmt"
	"strings"
)

// Filter is an expression that was read. Its zero value matches every frame. One goroutine
// uses it at a time; others use copies of it.
type Filter struct {
	match   predicate
	headers headers // of the frame that is looked at
}

// predicate says whether a frame is meant, by its headers.
type predicate func(*headers) bool

// Match reports whether a frame is meant. It allocates nothing.
func (f *Filter) Match(frame []byte) bool { return f.MatchCut(frame, len(frame)) }

// MatchCut is Match for what was kept of a frame that was longer. Headers that were cut off are
// as if they were not there.
func (f *Filter) MatchCut(kept []byte, length int) bool {
	if f.match == nil {
		return true
	}
	f.headers.parse(kept)
	f.headers.length = length
	return f.match(&f.headers)
}

// Help describes the language in a few lines.
const Help = `Filters are written as for tcpdump, with these words: ether [src|dst] MAC, ether proto
NUMBER, broadcast, multicast, vlan [ID], ip, ip6, arp, icmp, icmp6, tcp, udp, sctp,
proto NUMBER, [src|dst] host ADDRESS, [src|dst] net PREFIX, [src|dst] port NUMBER,
[src|dst] portrange A-B, [src|dst] vi NUMBER of a Trapeze NIC's frames, less BYTES,
greater BYTES; and, or, not, parentheses. And and or bind alike, from the left. What is behind VLAN tags is looked at in any case. Names of
hosts, networks and ports are not looked up.`

// SyntaxError says where an expression cannot be understood.
type SyntaxError struct {
	Expression string
	// Offset in bytes of the word that does not fit, the length of the expression for its
	// end.
	Offset int
	Want   string
}

func (e *SyntaxError) Error() string {
	word := "its end"
	if rest := strings.Fields(e.Expression[e.Offset:]); len(rest) > 0 {
		word = fmt.Sprintf("%q", rest[0])
	}
	return fmt.Sprintf("filter %q: at %s there must be %s", e.Expression, word, e.Want)
}

// Parse reads an expression; an empty one matches every frame. Errors are *SyntaxError.
func Parse(s string) (*Filter, error) {
	p := parser{text: s}
	p.next()
	if p.word == "" {
		return &Filter{}, nil
	}
	match, err := p.expression(0)
	if err == nil && p.word != "" {
		err = p.want("and, or, or the end")
	}
	if err != nil {
		return nil, err
	}
	return &Filter{match: match}, nil
}

// maxDepth bounds how deep parentheses and negations may be nested.
const maxDepth = 50

// parser reads an expression word by word.
type parser struct {
	text string
	at   int    // where word begins
	end  int    // of it
	word string // in lower case; empty at the end
}

// isPunctuation: these are words by themselves; & and | if they are doubled.
func isPunctuation(c byte) bool { return strings.IndexByte("()!&|", c) >= 0 }

func isSpace(c byte) bool { return strings.IndexByte(" \t\r\n", c) >= 0 }

// next goes on to the next word.
func (p *parser) next() {
	p.at = p.end
	for p.at < len(p.text) && isSpace(p.text[p.at]) {
		p.at++
	}
	p.end = p.at
	for p.end < len(p.text) && !isSpace(p.text[p.end]) && !isPunctuation(p.text[p.end]) {
		p.end++
	}
	if p.end == p.at && p.at < len(p.text) {
		p.end++
		if c := p.text[p.at]; (c == '&' || c == '|') && p.end < len(p.text) && p.text[p.end] == c {
			p.end++
		}
	}
	p.word = strings.ToLower(p.text[p.at:p.end])
}

// take goes on if the word is one of words.
func (p *parser) take(words ...string) bool {
	for _, w := range words {
		if p.word == w {
			p.next()
			return true
		}
	}
	return false
}

// want is the error about the present word.
func (p *parser) want(format string, a ...any) error {
	return &SyntaxError{p.text, p.at, fmt.Sprintf(format, a...)}
}

// expression reads terms that are joined by and and or, which bind alike.
func (p *parser) expression(depth int) (predicate, error) {
	left, err := p.term(depth)
	for err == nil {
		and := p.take("and", "&&")
		if !and && !p.take("or", "||") {
			return left, nil
		}
		var right predicate
		if right, err = p.term(depth); err == nil {
			left = join(and, left, right)
		}
	}
	return nil, err
}

func join(and bool, a, b predicate) predicate {
	if and {
		return func(h *headers) bool { return a(h) && b(h) }
	}
	return func(h *headers) bool { return a(h) || b(h) }
}

func (p *parser) term(depth int) (predicate, error) {
	if depth > maxDepth {
		return nil, p.want("less nesting: %d levels are possible", maxDepth)
	}
	switch {
	case p.take("not", "!"):
		a, err := p.term(depth + 1)
		if err != nil {
			return nil, err
		}
		return func(h *headers) bool { return !a(h) }, nil
	case p.take("("):
		a, err := p.expression(depth + 1)
		if err == nil && !p.take(")") {
			err = p.want("and, or, or )")
		}
		return a, err
	}
	return p.primitive()
}
