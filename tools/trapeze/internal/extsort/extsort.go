// Package extsort sorts records that do not fit into memory, in whatever can be read and
// written at an offset: runs are sorted in memory, and merged.
package extsort

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Record is the size of a record in bytes. Its key is a number in its first 8 bytes.
const Record = 64

// Store is where the records are: Sort reads them from the first half of a range, and
// leaves them sorted in the second.
type Store interface {
	io.ReaderAt
	io.WriterAt
}

// Block is the unit of reading and writing, in bytes.
const Block = 256 << 10

// LeastMemory is the least memory that Sort works with, in bytes.
const LeastMemory = 8 * Block

// longestRun bounds a run in bytes, where the number of runs allows it: what sorts one in memory does not look whether
// the job is to end, and takes some 4 s for 400 MB.
const longestRun = 64 << 20

// ErrSize: there is too little memory for so many records, or a part of a record.
var ErrSize = errors.New("records cannot be sorted in so much memory")

// Passes counts how often Fill, Sort and Check together move all records. They tell tick of each
// block, so that a job can show its progress.
const Passes = 6

// key and place of a record in the buffer of a run.
type entry struct {
	key   uint64
	place uint32
}

// Sort sorts the n bytes of records at the beginning of s into the n bytes behind them.
// It takes memory bytes of memory. What it has read it writes back in sorted runs.
func Sort(ctx context.Context, s Store, n int64, memory int, tick func(int)) error {
	// An entry takes a quarter of a record.
	run := int64(memory-Block) * Record / (Record + Record/4) / Block * Block
	if memory < LeastMemory || n <= 0 || n%Record != 0 {
		return fmt.Errorf("%w: %d bytes in %d", ErrSize, n, memory)
	}
	longest := int64(longestRun)
	for (n/longest+1)*Block > longest {
		longest *= 2
	}
	run = min(run, longest)
	runs := (n + run - 1) / run
	if runs*Block > run {
		return fmt.Errorf("%w: %d runs of %d bytes in %d", ErrSize, runs, run, memory)
	}
	buffer, out := make([]byte, run), make([]byte, 0, Block)
	entries := make([]entry, 0, run/Record)
	for at := int64(0); at < n; at += run {
		b := buffer[:min(run, n-at)]
		if err := read(ctx, s, b, at, tick); err != nil {
			return err
		}
		entries = entries[:0]
		for i := 0; i < len(b); i += Record {
			entries = append(entries, entry{binary.LittleEndian.Uint64(b[i:]), uint32(i / Record)})
		}
		slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
		w := writer{ctx, s, at, out, tick}
		for _, e := range entries {
			if err := w.add(b[int(e.place)*Record:][:Record]); err != nil {
				return err
			}
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
	return merge(ctx, s, n, run, buffer, out, tick)
}

// source is a run that is being merged: what was read of it, and where the rest is.
type source struct {
	key     uint64
	at, end int64
	block   []byte // room for what is read
	rest    []byte // of it, from the current record on
}

// next goes on to the next record, and reports whether there is one.
func (r *source) next(ctx context.Context, s Store, tick func(int)) (bool, error) {
	if len(r.rest) > 0 {
		r.rest = r.rest[Record:]
	}
	if len(r.rest) == 0 {
		if r.at == r.end {
			return false, nil
		}
		r.rest = r.block[:min(int64(len(r.block)), r.end-r.at)]
		if err := read(ctx, s, r.rest, r.at, tick); err != nil {
			return false, err
		}
		r.at += int64(len(r.rest))
	}
	r.key = binary.LittleEndian.Uint64(r.rest)
	return true, nil
}

// merge merges sorted runs by a heap of their first records.
func merge(ctx context.Context, s Store, n, run int64, buffer, out []byte, tick func(int)) error {
	var heap []*source
	for at := int64(0); at < n; at += run {
		r := &source{at: at, end: min(at+run, n), block: buffer[:Block:Block]}
		buffer = buffer[Block:]
		if _, err := r.next(ctx, s, tick); err != nil { // no run is empty
			return err
		}
		heap = append(heap, r)
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		sift(heap, i)
	}
	w := writer{ctx, s, n, out, tick}
	for len(heap) > 0 {
		r := heap[0]
		if err := w.add(r.rest[:Record]); err != nil {
			return err
		}
		more, err := r.next(ctx, s, tick)
		if err != nil {
			return err
		}
		if !more {
			heap[0] = heap[len(heap)-1]
			heap = heap[:len(heap)-1]
		}
		sift(heap, 0)
	}
	return w.flush()
}

// sift puts the source at i where it belongs below.
func sift(heap []*source, i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(heap); c++ {
			if heap[c].key < heap[least].key {
				least = c
			}
		}
		if least == i {
			return
		}
		heap[i], heap[least] = heap[least], heap[i]
		i = least
	}
}

// writer gathers records in a block.
type writer struct {
	ctx   context.Context
	store Store
	at    int64
	block []byte
	tick  func(int)
}

func (w *writer) add(record []byte) error {
	w.block = append(w.block, record...)
	if len(w.block) < cap(w.block) {
		return nil
	}
	return w.flush()
}

func (w *writer) flush() error {
	if err := w.ctx.Err(); err != nil {
		return context.Cause(w.ctx)
	}
	if _, err := w.store.WriteAt(w.block, w.at); err != nil {
		return err
	}
	w.tick(len(w.block))
	w.at += int64(len(w.block))
	w.block = w.block[:0]
	return nil
}

// read fills b from at on.
func read(ctx context.Context, s Store, b []byte, at int64, tick func(int)) error {
	for len(b) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n := min(len(b), Block)
		if m, err := s.ReadAt(b[:n], at); m < n {
			return err
		}
		tick(n)
		b, at = b[n:], at+int64(n)
	}
	return nil
}
