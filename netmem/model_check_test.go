package netmem

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

type opKind int

const (
	opRead      opKind = iota
	opOverwrite        // whatever the page is
	opReplace          // the value that is expected
)

// op is a call of a client, on a page that is a value.
type op struct {
	client     string
	page       uint64
	kind       opKind
	value      uint64 // read, or written
	expected   uint64 // of opReplace
	version    Version
	begun      int64
	done       int64 // 0: it has not been answered
	impossible bool  // a read that has failed
}

// history is what clients have called, and what came of it.
type history struct {
	mu   sync.Mutex
	time int64
	ops  []*op
}

func (h *history) begin(o op) *op {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.time++
	o.begun = h.time
	h.ops = append(h.ops, &o)
	return &o
}

func (h *history) end(o *op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.time++
	o.done = h.time
}

// drop forgets a read that has failed.
func (h *history) drop(o *op) { o.impossible = true }

// register is a page that is linearizable.
var register = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, _ any) (bool, any) {
		o, now := input.(*op), state.(uint64)
		switch {
		case o.kind == opRead:
			return o.value == now, now
		case o.kind == opOverwrite, o.expected == now:
			return true, o.value
		}
		return o.done == 0, now // without an answer it may have come to nothing
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", *input.(*op)) },
}

// check checks the history of each page.
func (h *history) check(t *testing.T) {
	t.Helper()
	pages := map[uint64][]*op{}
	for _, o := range h.ops {
		if !o.impossible {
			pages[o.page] = append(pages[o.page], o)
		}
	}
	for page, list := range pages {
		newest(t, list)
		switch check(list) {
		case porcupine.Ok:
		case porcupine.Unknown:
			t.Logf("page %d: no answer in time for %d calls", page, len(list))
		default:
			t.Errorf("page %d is not linearizable:\n%s", page, shortest(list))
		}
	}
}

// check checks that calls of a page are linearizable.
func check(list []*op) porcupine.CheckResult {
	seen := map[uint64]bool{}
	for _, o := range list {
		if o.kind == opRead {
			seen[o.value] = true
		}
		seen[o.expected] = true
	}
	var ops []porcupine.Operation
	for _, o := range list {
		k := porcupine.Operation{Input: o, Call: o.begun, Return: o.done}
		if o.done == 0 {
			if !seen[o.value] {
				continue // as if it had come to nothing
			}
			k.Return = math.MaxInt64
		}
		ops = append(ops, k)
	}
	return porcupine.CheckOperationsTimeout(register, ops, 20*time.Second)
}

// shortest describes the end of the shortest part of a history that is not linearizable.
func shortest(list []*op) (text string) {
	until := func(end int64) (part []*op) {
		for _, o := range list {
			switch {
			case o.begun > end:
			case o.done > end && o.kind == opRead:
			case o.done > end:
				cut := *o
				cut.done = 0
				part = append(part, &cut)
			default:
				part = append(part, o)
			}
		}
		return part
	}
	end := int64(0)
	for _, o := range list {
		end = max(end, o.begun, o.done)
	}
	last := 1 + sort.Search(int(end), func(n int) bool { return check(until(int64(n+1))) == porcupine.Illegal })
	part := until(int64(last))
	for _, o := range part {
		if o.done == 0 && o.begun > int64(last)-100 || o.done > int64(last)-30 {
			text += fmt.Sprintf("%+v\n", *o)
		}
	}
	return text
}

// newest checks that each read returns the last acknowledged write or one that is under way.
func newest(t *testing.T, list []*op) {
	t.Helper()
	written := map[uint64]*op{0: {}}
	var acknowledged []*op
	for _, o := range list {
		if o.kind == opRead {
			continue
		}
		written[o.value] = o
		if o.done != 0 {
			acknowledged = append(acknowledged, o)
		}
	}
	slices.SortFunc(acknowledged, func(a, b *op) int { return int(a.done - b.done) })
	for _, o := range list {
		if o.kind != opRead {
			continue
		}
		w := written[o.value]
		if w == nil || w.begun > o.done {
			t.Errorf("%+v is of no write before it", *o)
			continue
		}
		for _, a := range acknowledged {
			if a.done > o.begun {
				break
			}
			if a.version > o.version || a.version == o.version && a.value != o.value {
				t.Errorf("%+v is older than what was acknowledged before it: %+v", *o, *a)
				break
			}
		}
	}
}
