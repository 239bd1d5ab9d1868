package driver

import (
	"context"
	"fmt"
	"strconv"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Ptag is a protection tag. The NIC lets a VI touch only memory that was
// registered with the ptag of the VI.
type Ptag struct {
	n       *NIC
	number  uint32
	leaving leaving // VIs and memory use it
}

// CreatePtag makes a new protection tag. It fails with ErrResource if there are
// no more.
func (n *NIC) CreatePtag(ctx context.Context) (*Ptag, error) {
	return get(ctx, n.do, "create ptag", func() (*Ptag, error) {
		reply, err := n.execute(ctx, &datasheet.Command{Opcode: datasheet.OpCreatePtag})
		if err != nil {
			return nil, err
		}
		return &Ptag{n: n, number: datasheet.Reply[datasheet.PtagBody](reply).Ptag}, nil
	})
}

// Close ends the ptag. It fails with ErrInUse while memory or a VI has it, and with ErrResource while a ring or a channel
// has. A second call does nothing.
func (p *Ptag) Close(ctx context.Context) error {
	n := p.n
	return n.doClosing(ctx, "close ptag", func() error {
		return p.leaving.close(ctx, n, "close the VIs and the memory that have this ptag first", func() bool { return p.leaving.uses > 0 },
			newCommand(datasheet.OpDestroyPtag, datasheet.PtagBody{Ptag: p.number}), func(err error) error { return err })
	})
}

// Number is the NIC's name for the ptag, 0 for nil.
func (p *Ptag) Number() uint32 {
	if p == nil {
		return 0
	}
	return p.number
}

// String is the number.
func (p *Ptag) String() string { return strconv.FormatUint(uint64(p.Number()), 10) }

// Ptag is the protection tag of what is made without another one.
func (n *NIC) Ptag() *Ptag { return n.ptag }

// SetDefaults says what is made without a ptag has, and whether memory and VIs are eager that do not say so themselves. It
// is called before anything is made.
func (n *NIC) SetDefaults(p *Ptag, eager bool) { n.ptag, n.eager = p, eager }

// ptagOr returns p, or the NIC's default for nil.
func (n *NIC) ptagOr(p *Ptag) *Ptag {
	if p == nil {
		return n.ptag
	}
	return p
}

// use counts one more use of p, which may be nil, unless it belongs to another NIC or is closed.
func (p *Ptag) use(n *NIC) error {
	if p == nil {
		return nil
	}
	if p.n != n {
		return hinted(fmt.Errorf("%w: a ptag of another NIC", descriptors.ErrInvalidParameter), "objects can be used with the NIC that made them only")
	}
	if err := p.leaving.use(n); err != nil {
		return fmt.Errorf("ptag: %w", err)
	}
	return nil
}

// usedFor counts one more use of p, for what f makes or changes, unless f fails.
func (p *Ptag) usedFor(n *NIC, f func() error) error {
	if err := p.use(n); err != nil {
		return err
	}
	err := f()
	if err != nil {
		p.leave()
	}
	return err
}

// leave undoes use.
func (p *Ptag) leave() {
	if p != nil {
		p.leaving.leave(p.n)
	}
}
