package qtest

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// FuzzAnswers: whatever comes as the answer to a read gives a number that fits, or a
// typed error, and the connection is lost but after a refusal.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		"OK 0x0000000000000001\n", "OK\n", "OK 0x1 0x2\n", "FAIL\n", "FAIL Unknown command 'x'\n", "ERR\r\n",
		"IRQ raise 3\nOK 0x10\r\n", "IRQ lower 70000\n", "IRQ\n", "\n\n", "OK 0x", "OK 0xffffffffffffffffff\n", "OK 0x100000000\n", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		go func() {
			defer theirs.Close()
			var request [32]byte
			_, _ = theirs.Read(request[:])
			_, _ = theirs.Write(stream)
		}()
		l := newLink(ours, time.Minute)
		m := &Machine{link: l}
		v, err := m.read("readl", 0, 4)
		var refusal *AnswerError
		switch {
		case err == nil:
			if v > 0xffffffff || l.lost() != nil {
				t.Errorf("%#x, %v", v, l.lost())
			}
		case errors.As(err, &refusal):
			if l.lost() != nil {
				t.Error(l.lost())
			}
		case !errors.Is(err, ErrGarbage) && !errors.Is(err, io.EOF) || l.lost() == nil:
			t.Errorf("%v, %v", err, l.lost())
		}
	})
}

func FuzzParseBytes(f *testing.F) {
	f.Add("0x0102")
	f.Add("0x01020")
	f.Add("0x0x02")
	f.Add("")
	f.Fuzz(func(t *testing.T, value string) {
		var p [2]byte
		if err := parseBytes(value, p[:]); err != nil && !errors.Is(err, ErrGarbage) {
			t.Error(err)
		}
	})
}
