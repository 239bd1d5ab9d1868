package engine_test

import (
	"bytes"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// payloads has the payload of each data frame that was shown, by whether it was sent.
type payloads map[bool][]byte

func (p payloads) see(sent bool, frame []byte) {
	if h := datasheet.HeaderAt(frame); isData(frame) {
		p[sent] = append(p[sent], frame[datasheet.HeaderSize:datasheet.HeaderSize+int(h.Length)]...)
	}
}

// TestWatch: who watches sees all bytes of messages, both ways, also those that would be lent or
// come in parts, and the messages arrive. Later nothing is seen, and what was lent before is again.
func TestWatch(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		for wire, o := range map[string]option{"whole frames": func(*engine.Config, *port) {}, "in parts": inParts(nil)} {
			t.Run(wire, func(t *testing.T) {
				w, v, p, a, _ := lentPair(t, 8192, change, o)
				for _, watched := range []*node{w.a, w.b, nil} {
					seen := payloads{}
					if watched != nil && (!watched.e.Watch(seen.see) || watched.e.Watch(seen.see)) {
						t.Fatal("one can watch, and two cannot")
					}
					lent := a.lent
					var sent []byte
					for i, size := range []int{0, 1, 100, 4096, 8193, 30_000} {
						mustArrive(t, v, p, size, uint64(i))
						sent = append(sent, pattern(size, uint64(i))...)
					}
					switch watched {
					case w.a:
						if !bytes.Equal(seen[true], sent) || len(seen[false]) > 0 || a.lent != lent {
							t.Errorf("sender: %d bytes seen of %d, %d received ones, %d lent", len(seen[true]), len(sent), len(seen[false]), a.lent-lent)
						}
					case w.b:
						if !bytes.Equal(seen[false], sent) || len(seen[true]) > 0 {
							t.Errorf("receiver: %d bytes seen of %d, %d sent ones", len(seen[false]), len(sent), len(seen[true]))
						}
					default:
						should.Be(t, a.lent != lent, level != datasheet.Unreliable, "afterwards it lends")
					}
					if watched != nil {
						watched.e.Watch(nil)
						clear(seen)
						mustArrive(t, v, p, 5000, 9)
						should.Be(t, len(seen), 0, "frames are shown to one who has left")
					}
				}
			})
		}
	})
}

// TestWatchAcrossReset: a reset ends no watch, and a control program none either.
func TestWatchAcrossReset(t *testing.T) {
	w, v, p, _, _ := lentPair(t, 8192, nil)
	seen := payloads{}
	w.a.e.Watch(seen.see)
	w.a.use(&scripted{})
	mustArrive(t, v, p, 100, 1)
	should.Be(t, len(seen[true]), 100, "bytes seen")
	w.a.e.Reset()
	should.Be(t, w.a.e.Watch(seen.see), false, "a reset ends a watch")
}
