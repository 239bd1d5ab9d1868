package via

import "context"

// Ptag is a protection tag. The NIC lets a VI touch only memory that was
// registered with the ptag of the VI.
type Ptag struct {
	object
	number uint32
}

// CreatePtag makes a new protection tag. It fails with ErrResource if there are
// no more.
func (n *NIC) CreatePtag(ctx context.Context) (*Ptag, error) {
	const op = "create ptag"
	if err := n.check(ctx, op); err != nil {
		return nil, err
	}
	number, err := n.provider.CreatePtag(ctx)
	if err != nil {
		return nil, n.fail(op, err)
	}
	return &Ptag{object: object{nic: n}, number: number}, nil
}

// DestroyPtag is p.Destroy. It refuses nil and the ptag of another NIC with
// ErrInvalidParameter.
func (n *NIC) DestroyPtag(ctx context.Context, p *Ptag) error {
	const op = "destroy ptag"
	if p == nil || p.nic != n {
		return n.refuse(op, ErrInvalidParameter, "", "not a ptag of this NIC")
	}
	return p.Destroy(ctx)
}

// Destroy ends the ptag. It fails with ErrResource while memory or a VI has it.
func (p *Ptag) Destroy(ctx context.Context) error {
	const op = "destroy ptag"
	if err := p.retire(ctx, op, ErrResource, "destroy the VIs and deregister the memory that have this ptag first"); err != nil {
		return err
	}
	if err := p.nic.provider.DestroyPtag(ctx, p.number); err != nil {
		p.revive()
		return p.nic.fail(op, err)
	}
	return nil
}

// Number is the NIC's name for the ptag.
func (p *Ptag) Number() uint32 { return p.number }

// ptagOr returns p, or the NIC's default for nil.
func (n *NIC) ptagOr(p *Ptag) *Ptag {
	if p == nil {
		return n.ptag
	}
	return p
}
