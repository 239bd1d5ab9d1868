package via

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/via/internal/hosts"
)

// NameService finds programs by name. DNSNames makes one; the modules etcd and
// kubernetes have others. Its methods may be called from several goroutines. Their errors match
// ErrNameService, and ErrInvalidParameter for a name, an address or a lease that cannot be.
type NameService interface {
	// Publish enters an address under a name. The entry holds until it is withdrawn, or until the
	// service has heard nothing of this process for the lease, from LeastLease to MostLease.
	// Publishing the same name and address again takes the entry over: the earlier publication is
	// lost. Several addresses may have one name. A service without a place for leases fails with
	// errors.ErrUnsupported.
	Publish(ctx context.Context, name string, a Address, lease time.Duration) (*Publication, error)
	// Resolve returns the addresses that have a name, sorted by their text. That there is none is no error.
	Resolve(ctx context.Context, name string) ([]Address, error)
	// Watch calls changed with the addresses that have a name, now and when they change, until ctx
	// ends, whose error it returns. While the service cannot be reached it tries again.
	Watch(ctx context.Context, name string, changed func([]Address)) error
}

// Limits of the lease of a publication. etcd and Kubernetes count whole seconds.
const (
	LeastLease = time.Second
	MostLease  = time.Hour
)

// CheckPublication fails with ErrInvalidParameter unless a name, an address and a lease can be
// published. Services call it.
func CheckPublication(name string, a Address, lease time.Duration) error {
	const op = "publish name"
	switch {
	case !hosts.GoodName(name):
		return nameError(op, ErrInvalidParameter, errors.New("name "+quoted(name)+": use letters, digits, dots, hyphens and underscores"))
	case a.MAC.IsMulticast() || a.MAC == MAC{}:
		return nameError(op, ErrInvalidParameter, errors.New("address "+a.String()+" is not that of one NIC"))
	case len(a.Discriminator) > MaxDiscriminator:
		return nameError(op, ErrInvalidParameter, errors.New("the discriminator is too long"))
	case lease < LeastLease || lease > MostLease:
		return nameError(op, ErrInvalidParameter, errors.New("lease "+lease.String()+": use "+LeastLease.String()+" to "+MostLease.String()))
	}
	return nil
}

func quoted(s string) string {
	return `"` + strings.ToValidUTF8(s[:min(len(s), hosts.MaxName)], "?") + `"`
}

func nameError(op string, code Code, cause error) error {
	return &Error{Op: op, Code: code, Err: cause}
}

// NameError is the error of a NameService: it matches ErrNameService and the cause, and is nil
// without one.
func NameError(op string, cause error) error {
	if cause == nil {
		return nil
	}
	return nameError(op, ErrNameService, cause)
}

// ErrLeaseLost is the error of a service's renewal once another publication has the entry, or the
// service has forgotten it.
var ErrLeaseLost = errors.New("the lease of the name is lost")

// Publication is an address that is published under a name.
type Publication struct {
	term     uint64
	lost     chan struct{}
	cancel   context.CancelFunc
	ended    chan struct{} // the goroutine has
	withdraw func() error
}

// KeepPublished makes the Publication of a service, and calls renew three times in each lease. It
// is lost at once when renew fails with ErrLeaseLost, and else when no renew that began within a
// lease has succeeded. remove withdraws it. granted is when the service was first asked.
func KeepPublished(term uint64, granted time.Time, lease time.Duration, renew, remove func(context.Context) error) *Publication {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Publication{term: term, lost: make(chan struct{}), cancel: cancel, ended: make(chan struct{})}
	p.withdraw = sync.OnceValue(func() error {
		cancel()
		<-p.ended
		within, end := context.WithTimeout(context.Background(), min(lease, removeTimeout))
		defer end()
		return NameError("withdraw name", remove(within))
	})
	go func() {
		defer close(p.ended)
		defer close(p.lost)
		keep(ctx, granted.Add(lease), lease, renew)
	}()
	return p
}

// removeTimeout bounds a withdrawal: the lease ends the entry if it fails.
const removeTimeout = 5 * time.Second

// keep renews until ctx ends or the lease has run out.
func keep(ctx context.Context, until time.Time, lease time.Duration, renew func(context.Context) error) {
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	out := time.NewTimer(time.Until(until))
	defer out.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-out.C:
			return
		case <-tick.C:
		}
		began := time.Now()
		attempt, stop := context.WithTimeout(ctx, min(lease/3, time.Until(until)))
		err := renew(attempt)
		stop()
		switch {
		case errors.Is(err, ErrLeaseLost):
			return
		case err == nil:
			until = began.Add(lease)
			out.Reset(time.Until(until))
		}
	}
}

// Term is larger than that of each earlier publication of the same name and address. Who is handed
// work by a publisher can refuse it under a lower term.
func (p *Publication) Term() uint64 { return p.term }

// Lost is closed once the entry may be gone, or another's: at the latest when the lease has gone
// by without word from the service. It is closed too when the entry is withdrawn.
func (p *Publication) Lost() <-chan struct{} { return p.lost }

// Withdraw removes the entry, unless another publication has it. It takes at most five seconds; if
// it fails with ErrNameService, the entry holds until the lease has gone by.
func (p *Publication) Withdraw() error { return p.withdraw() }

// PollNames is Watch for services that tell no changes: it resolves again after each interval.
func PollNames(ctx context.Context, every time.Duration, resolve func(context.Context) ([]Address, error), changed func([]Address)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last []Address
	for known := false; ; {
		if now, err := resolve(ctx); err == nil && (!known || !slices.Equal(now, last)) {
			last, known = now, true
			changed(slices.Clone(now))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
