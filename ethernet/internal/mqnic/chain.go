package mqnic

import (
	"fmt"
	"strings"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// block is a register block: what it says it is, and where it is in BAR0.
type block struct {
	kind, version uint32
	at            uint64
}

// maxBlocks limits the length of a chain: no design has nearly as many.
const maxBlocks = 256

// chain walks the blocks from first on. Pointers to the next one count from base, 0 ends the chain,
// and all has to be below end. The errors wrap ErrProtocol, or are those of the registers.
func (r *registers) chain(base, first, end uint64) ([]block, error) {
	var list []block
	seen := map[uint64]bool{}
	for at := base + first; ; {
		switch {
		case at%4 != 0 || at < base || at > end || end-at < blockHeader:
			return nil, fmt.Errorf("%w: a register block at %#x is not in %#x to %#x", ethernet.ErrProtocol, at, base, end)
		case seen[at]:
			return nil, fmt.Errorf("%w: the chain of register blocks comes back to %#x", ethernet.ErrProtocol, at)
		case len(list) == maxBlocks:
			return nil, fmt.Errorf("%w: there are more than %d register blocks", ethernet.ErrProtocol, maxBlocks)
		}
		seen[at] = true
		b := block{kind: r.Read(at), version: r.Read(at + blockVersion), at: at}
		next := r.Read(at + blockNext)
		if b.version == allOnes || next == allOnes {
			r.alive() // the NIC or the block
		}
		if err := r.Err(); err != nil {
			return nil, err
		}
		list = append(list, b)
		if next == 0 {
			return list, nil
		}
		at = base + uint64(next)
	}
}

// all returns the blocks of a kind, in order. One that leaves the BAR at end is an ErrProtocol.
func all(list []block, k kind, end uint64) ([]block, error) {
	var found []block
	for _, b := range list {
		if b.kind != k.id || b.version != k.version {
			continue
		}
		if end-b.at < k.size {
			return nil, fmt.Errorf("%w: block %s at %#x does not end below %#x", ethernet.ErrProtocol, k.name, b.at, end)
		}
		found = append(found, b)
	}
	return found, nil
}

// one returns the only block of a kind, and nil if there is none. Two are an ErrProtocol.
func one(list []block, k kind, end uint64) (*block, error) {
	found, err := all(list, k, end)
	switch {
	case err != nil || len(found) == 0:
		return nil, err
	case len(found) > 1:
		return nil, fmt.Errorf("%w: block %s is at %#x and at %#x", ethernet.ErrProtocol, k.name, found[0].at, found[1].at)
	}
	return &found[0], nil
}

// need is one for a block without which there is no port. The error says which versions there are.
func need(list []block, k kind, end uint64) (block, error) {
	b, err := one(list, k, end)
	if err == nil && b == nil {
		err = missing(list, k)
	}
	if err != nil {
		return block{}, err
	}
	return *b, nil
}

// missing says that a block is not there, or not in the version that is known.
func missing(list []block, k kind) error {
	var others []string
	for _, b := range list {
		if b.kind == k.id {
			others = append(others, version(b.version))
		}
	}
	if others == nil {
		return fmt.Errorf("%w: it has no register block %s (type %08x)", ethernet.ErrUnsupportedDevice, k.name, k.id)
	}
	return fmt.Errorf("%w: its register block %s (type %08x) has version %s, and this driver knows %s",
		ethernet.ErrUnsupportedDevice, k.name, k.id, strings.Join(others, ", "), version(k.version))
}

// version writes a version of a block as major, minor, patch and meta.
func version(v uint32) string {
	return fmt.Sprintf("%d.%d.%d.%d", v>>24, v>>16&0xff, v>>8&0xff, v&0xff)
}
