package extsort

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"math/rand/v2"
)

// Sum tells sets of records apart, whatever their order.
type Sum struct {
	Records int64
	// Digest is the sum of the records' checksums.
	Digest uint64
}

// ErrOrder: records are not sorted.
var ErrOrder = errors.New("records are not in order")

var table = crc64.MakeTable(crc64.ECMA)

func (s *Sum) add(record []byte) {
	s.Records++
	s.Digest += crc64.Checksum(record, table)
}

// Fill writes n bytes of records at random to the beginning of s.
func Fill(ctx context.Context, s Store, n int64, seed uint64, tick func(int)) (sum Sum, err error) {
	random := rand.New(rand.NewPCG(seed, 0))
	w := writer{ctx, s, 0, make([]byte, 0, Block), tick}
	var record [Record]byte
	for range n / Record {
		for i := 0; i < Record; i += 8 {
			binary.LittleEndian.PutUint64(record[i:], random.Uint64())
		}
		sum.add(record[:])
		if err := w.add(record[:]); err != nil {
			return sum, err
		}
	}
	return sum, w.flush()
}

// Check reads n bytes of records from at on. It fails with ErrOrder unless they are sorted.
func Check(ctx context.Context, s Store, at, n int64, tick func(int)) (sum Sum, err error) {
	block, last := make([]byte, Block), uint64(0)
	for end := at + n; at < end; at += int64(len(block)) {
		block = block[:min(int64(Block), end-at)]
		if err := read(ctx, s, block, at, tick); err != nil {
			return sum, err
		}
		for i := 0; i < len(block); i += Record {
			key := binary.LittleEndian.Uint64(block[i:])
			if key < last {
				return sum, fmt.Errorf("%w: %#x comes after %#x at byte %d", ErrOrder, key, last, at+int64(i))
			}
			last = key
			sum.add(block[i : i+Record])
		}
	}
	return sum, nil
}
