package profile

import (
	"embed"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/strict"
	"github.com/trapeze-nic/trapeze/internal/strict/stricttoml"
)

//go:embed platforms/*.toml
var platforms embed.FS

// Sentinel errors inside an *Error.
var (
	ErrUnknown    = errors.New("unknown profile")
	ErrUnreadable = errors.New("cannot be read")
	ErrSyntax     = errors.New("is not TOML")
	ErrUnknownKey = errors.New("unknown key")
	ErrMissing    = errors.New("missing")
	ErrValue      = errors.New("bad value")
	ErrBase       = errors.New("bad base")
)

// The raw types have a file as it is: a key is the field's name, in small letters.

type rawBus struct {
	Duplex, Read, Write, Overhead *string
	ReadOverhead                  *string `toml:"read_overhead"`
	WriteOverhead                 *string `toml:"write_overhead"`
}

// text returns what a table says under a key.
func (b *rawBus) text(key string) *string {
	return map[string]*string{"duplex": b.Duplex, "read": b.Read, "write": b.Write, "overhead": b.Overhead,
		"read_overhead": b.ReadOverhead, "write_overhead": b.WriteOverhead}[key]
}

type raw struct {
	Summary, Base    *string
	Bus              rawBus
	Sender, Receiver struct{ Bus rawBus }
	Host             struct{ Cost *string }
	NIC              struct {
		Decision, Completion, Packet, Memory *string
		Buffers                              *int64
		LogSend                              *string `toml:"log_send"`
		LogReceive                           *string `toml:"log_receive"`
	}
	Link struct{ Bandwidth, Overhead, Latency, Header *string }
}

// Hosts are the cost profiles. A file of the user's may rest on another one beside it.
var Hosts = Library[*Profile]{platforms, "platforms", parseHost}

func parseHost(l Library[*Profile], title, file string, text []byte) (*Profile, error) {
	return parse(title, file, text, func(base string) ([]byte, error) {
		if strings.HasSuffix(base, ".toml") { // no built-in one has such a base
			return readFile(filepath.Join(filepath.Dir(file), filepath.Base(base)))
		}
		return l.Source(base)
	})
}

// maxBases bounds how many profiles a profile rests on, one upon the other.
const maxBases = 8

// parse reads a profile and those that it is based on.
func parse(title, file string, text []byte, source func(string) ([]byte, error)) (*Profile, error) {
	type layer struct {
		file string
		text []byte
	}
	own := new(raw)
	if err := decode(file, text, own, hostKeys); err != nil {
		return nil, err
	}
	texts, layers := []layer{{file, text}}, []*raw{own}
	for base := own.Base; base != nil; base = layers[len(layers)-1].Base {
		bad := &Error{File: texts[len(texts)-1].file, Key: "base", Value: *base, Err: ErrBase}
		if len(layers) > maxBases {
			bad.Allowed = fmt.Sprintf("a profile that rests on less than %d others, and not on itself", maxBases)
			return nil, bad
		}
		text, err := source(*base)
		if err != nil {
			bad.Err = fmt.Errorf("%w: %w", ErrBase, err)
			return nil, bad
		}
		next := new(raw)
		if err := decode(*base, text, next, hostKeys); err != nil {
			return nil, err
		}
		texts, layers = append(texts, layer{*base, text}), append(layers, next)
	}
	// Decoding on top keeps what a file does not mention.
	merged := new(raw)
	for _, l := range slices.Backward(texts) {
		if err := decode(l.file, l.text, merged, hostKeys); err != nil {
			return nil, err
		}
	}
	return merged.resolve(title, file, layers)
}

// keys hold what a kind of file may say, for errors.
type keys struct{ names, example string }

var hostKeys = keys{
	names:   "summary, base, bus, sender.bus, receiver.bus, host.cost, nic.{decision,completion,packet,log_send,log_receive,buffers,memory}, link.{bandwidth,overhead,latency,header}",
	example: `each key once, with a quoted quantity and its unit, such as "132 MB/s"; buffers is a whole number from 1 to 1024`,
}

func decode(file string, text []byte, into any, allowed keys) error {
	var bad *strict.Error
	if !errors.As(stricttoml.Decode(text, into), &bad) {
		return nil
	}
	e := &Error{File: file, Key: bad.Key, Err: fmt.Errorf("%w: %w", ErrSyntax, bad.Err)}
	if bad.Line > 0 {
		e.File += ":" + strconv.Itoa(bad.Line)
	}
	switch {
	case errors.Is(bad, strict.ErrUnknown):
		e.Err, e.Allowed = ErrUnknownKey, allowed.names
	case bad.Key != "":
		e.Err, e.Allowed = fmt.Errorf("%w: %w", ErrValue, bad.Err), allowed.example
	}
	return e
}
