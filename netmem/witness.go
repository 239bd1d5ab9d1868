package netmem

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/trapeze-nic/trapeze/internal/filelock"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/via"
)

// Record says which servers of a pool have all pages that they should have.
type Record = protocol.Record

// Witness decides which part of a pool goes on when its servers and clients do not all reach each
// other: it keeps the pool's record, and changes it one step at a time. PROTOCOL.md says what
// depends on it. A store with a compare-and-swap can be one.
type Witness interface {
	// Name tells this witness from others. It is the same for all clients of a pool.
	Name() string
	// Swap puts a record in the place of the one whose Epoch is one less; with first set, also in
	// the place of none or of any older one. It returns the record that is kept then, which is another one if that
	// was not so. What it returns outlives the witness's process.
	Swap(ctx context.Context, nic *via.NIC, to Record, first bool) (Record, error)
}

// WitnessFile is a witness for clients of one host, or of hosts that share a file system with
// flock(2). The file is made if it is not there; its folder has to be there.
func WitnessFile(path string) Witness { return witnessFile(path) }

type witnessFile string

func (w witnessFile) Name() string { return "file:" + string(w) }

// slotBytes is the size of a slot of the file: a record and its CRC-32 (IEEE). Two slots are
// written in turns, so that one is whole whenever the writer is killed.
const slotBytes = protocol.RecordSize + 4

func (w witnessFile) Swap(ctx context.Context, _ *via.NIC, to Record, first bool) (_ Record, err error) {
	f, err := os.OpenFile(string(w), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrNoWitness, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := filelock.Lock(ctx, int(f.Fd())); err != nil {
		return Record{}, fmt.Errorf("%w: lock %s: %w", ErrNoWitness, w, err)
	}
	now, err := w.read(f)
	if err != nil {
		return Record{}, err
	}
	if now.Pool == to.Pool && !follows(now, to, first) || now.Pool != to.Pool && !first {
		return now, nil
	}
	b := to.Append(make([]byte, 0, slotBytes))
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	if _, err := f.WriteAt(b, int64(to.Epoch%2)*slotBytes); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrNoWitness, err)
	}
	if first && now.Pool != to.Pool { // of a pool of before nothing is left
		if _, err := f.WriteAt(make([]byte, slotBytes), int64((to.Epoch+1)%2)*slotBytes); err != nil {
			return Record{}, fmt.Errorf("%w: %w", ErrNoWitness, err)
		}
	}
	if err := f.Sync(); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrNoWitness, err)
	}
	return to, nil
}

// follows says whether a witness which keeps now of a pool, or the zero record, replaces it by to. With
// first a client has heard the record before to from all members, so that an older one is not
// the last that there was: the witness has lost that.
func follows(now, to Record, first bool) bool {
	return now.Epoch != 0 && now.Epoch == to.Epoch-1 || first && now.Epoch < to.Epoch
}

// read returns the newest record that is whole; the zero record if there is none.
func (w witnessFile) read(f *os.File) (now Record, err error) {
	b := make([]byte, 2*slotBytes)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return now, fmt.Errorf("%w: %w", ErrNoWitness, err)
	}
	for at := 0; at+slotBytes <= n; at += slotBytes {
		slot := b[at:][:slotBytes]
		r, err := protocol.ParseRecord(slot[:protocol.RecordSize])
		if err == nil && binary.LittleEndian.Uint32(slot[protocol.RecordSize:]) == crc32.ChecksumIEEE(slot[:protocol.RecordSize]) && r.Epoch > now.Epoch {
			now = r
		}
	}
	return now, nil
}

// WitnessServer is a witness in a page server that is none of the pool's, at an address of
// via.Dial. All clients of the pool give the same one. It keeps records in its memory: after it
// was restarted, clients tell it again once they reach all members.
func WitnessServer(address string) Witness {
	if a, err := via.ParseAddress(address); err == nil { // which can be written in several ways
		address = a.String()
	}
	return witnessServer(address)
}

type witnessServer string

func (w witnessServer) Name() string { return string(w) }

func (w witnessServer) Swap(ctx context.Context, nic *via.NIC, to Record, first bool) (Record, error) {
	at, err := resolve(ctx, nic, []string{string(w)})
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrNoWitness, err)
	}
	return swapAt(ctx, onNIC{nic}, at[0], to, first)
}

// swapAt is Swap of the witness at an address.
func swapAt(ctx context.Context, f fabric, witness via.Address, to Record, first bool) (Record, error) {
	l, _, err := dialLine(ctx, f, witness, 2, DefaultTimeout)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrNoWitness, err)
	}
	defer l.close()
	q := protocol.Request{Operation: protocol.Witness}
	if first {
		q.Condition = protocol.IfOlder
	}
	q.SetRecord(to, 0)
	d, err := l.describe(ctx, &q)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrNoWitness, err)
	}
	return d.Record, nil
}
