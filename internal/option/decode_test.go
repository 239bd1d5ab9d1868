package option_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/option"
)

// cable is an address with everything that a tag can say.
type cable struct {
	Plug    string         `option:"plug" required:"true" range:"1..4"`
	Kind    int            `option:"kind" oneof:",copper,glass"`
	Crossed bool           `option:"crossed" oneof:"no,yes" excludes:"straight"`
	Plain   bool           `option:"straight"`
	Pairs   uint8          `option:"pairs" default:"4"`
	Bend    int            `option:"bend" range:"-90..90"`
	Loss    float64        `option:"loss" range:"0..1"`
	Delay   time.Duration  `option:"delay" range:"1us..1s"`
	Memory  option.Bytes   `option:"memory" range:"4K.."`
	Spare   []string       `option:"spare"`
	Ends    []string       `option:"end" split:"comma"`
	Lengths []int          `option:"length" range:"1..100"`
	Colour  string         `option:"colour" oneof:"red,blue"`
	Seal    string         `option:"seal" range:"2.." allowed:"a seal of the yard"`
	Sizes   []option.Bytes `option:"size"`
	Inside  struct {
		Strands int64 `option:"strands"`
	}
	note string
}

// address reads "a=1&b=2"; a key may be given again.
func address(text string) map[string][]string {
	values := map[string][]string{}
	for pair := range strings.SplitSeq(text, "&") {
		key, value, _ := strings.Cut(pair, "=")
		values[key] = append(values[key], value)
	}
	return values
}

func TestDecode(t *testing.T) {
	var c cable
	err := option.Decode("option", address("plug=RJ45&kind=glass&crossed=yes&bend=-90&loss=0.5&delay=5us&memory=1M&spare=a,b&spare=c&end=x,y"+
		"&length=1,2&length=3&colour=blue&size=1K,2K&strands=-7"), &c)
	want := cable{Plug: "RJ45", Kind: 2, Crossed: true, Pairs: 4, Bend: -90, Loss: 0.5, Delay: 5 * time.Microsecond, Memory: 1 << 20,
		Spare: []string{"a,b", "c"}, Ends: []string{"x", "y"}, Lengths: []int{1, 2, 3}, Colour: "blue", Sizes: []option.Bytes{1024, 2048}}
	want.Inside.Strands = -7
	if fmt.Sprintf("%+v", c) != fmt.Sprintf("%+v", want) || err != nil {
		t.Errorf("%+v, %v, want %+v", c, err, want)
	}
	names := option.Names("option", &c)
	if len(names) != 16 || !slices.Contains(names, "strands") || c.note != "" {
		t.Errorf("names %q", names)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"kind=copper":                      "option plug: it is required: a text of 1..4 bytes",
		"plug=":                            "option plug: it is a text of 1..4 bytes",
		"plug=RJ451":                       "option plug=RJ451: it is a text of 1..4 bytes",
		"plug=a&plug=b":                    "option plug=a,b: it is one value",
		"plug=a&kind=":                     "option kind: it is copper or glass",
		"plug=a&kind=1":                    "option kind=1: it is copper or glass",
		"plug=a&crossed=true":              "option crossed=true: it is no or yes",
		"plug=a&straight=perhaps":          "it is true or false",
		"plug=a&pairs=256":                 "option pairs=256: it is a whole number in 0..255",
		"plug=a&pairs=-1":                  "it is a whole number in 0..255",
		"plug=a&bend=91":                   "it is a whole number in -90..90",
		"plug=a&bend=x":                    "it is a whole number in -90..90",
		"plug=a&loss=NaN":                  "it is a number in 0..1",
		"plug=a&loss=1.01":                 "it is a number in 0..1",
		"plug=a&delay=999ns":               "it is a time in 1us..1s such as 5us, 200ms",
		"plug=a&delay=2s":                  "it is a time in 1us..1s",
		"plug=a&memory=4095":               "it is a number of bytes of at least 4K such as 64",
		"plug=a&memory=much":               "it is a number of bytes of at least 4K",
		"plug=a&length=1,,2":               "option length=1,,2: it is a whole number in 1..100",
		"plug=a&length=101":                "it is a whole number in 1..100",
		"plug=a&seal=x":                    "it is a seal of the yard",
		"plug=a&crossed=yes&straight=true": "option crossed: it excludes straight: leave one of the two out",
		"plug=a&colour=green":              "it is red or blue",
		"plug=a&size=1K,x":                 "it is a number of bytes such as 64, 4K or 1M, or several with commas between them",
	} {
		var bad *option.KeyError
		if err := option.Decode("option", address(text), new(cable)); !errors.As(err, &bad) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	for key, hint := range map[string]string{"pluk": "did you mean plug?", "x": "known options: plug, kind, crossed"} {
		var unknown *option.UnknownError
		if err := option.Decode("option", address("plug=a&"+key+"=1"), new(cable)); !errors.As(err, &unknown) || !strings.HasPrefix(unknown.Hint(), hint) {
			t.Errorf("%s: %v, hint %q, want %q", key, err, unknown.Hint(), hint)
		}
	}
}

// FuzzDecode: what is taken lies in its range.
func FuzzDecode(f *testing.F) {
	f.Add("plug=RJ45&bend=-90&loss=1e-3&length=1,2&delay=5us&memory=4K&pairs=1")
	f.Fuzz(func(t *testing.T, text string) {
		var c cable
		if option.Decode("option", address(text), &c) != nil {
			return
		}
		if len(c.Plug) < 1 || len(c.Plug) > 4 || c.Bend < -90 || c.Bend > 90 || !(c.Loss >= 0 && c.Loss <= 1) || c.Memory != 0 && c.Memory < 4096 ||
			c.Delay != 0 && (c.Delay < time.Microsecond || c.Delay > time.Second) || c.Kind < 0 || c.Kind > 2 {
			t.Errorf("%+v", c)
		}
		for _, n := range c.Lengths {
			if n < 1 || n > 100 {
				t.Errorf("length %d", n)
			}
		}
	})
}

func TestBytes(t *testing.T) {
	for s, want := range map[string]struct {
		n     int64
		again string
	}{
		"0": {0, "0"}, "64": {64, "64"}, "4K": {4096, "4K"}, "4096": {4096, "4K"}, "1m": {1 << 20, "1M"}, "3GB": {3 << 30, "3G"},
		"2T": {2 << 40, "2T"}, "1025K": {1025 << 10, "1025K"},
	} {
		var b option.Bytes
		if err := b.Set(s); err != nil || int64(b) != want.n || b.String() != want.again {
			t.Errorf("%s: %d, %s, %v", s, b, b.String(), err)
		}
	}
	for _, s := range []string{"", "K", "x", "-1", "1.5M", "9223372036854775807K", "4KK"} {
		b := option.Bytes(7)
		if err := b.Set(s); err == nil || b != 7 {
			t.Errorf("%q was read as %d", s, b)
		}
	}
}
