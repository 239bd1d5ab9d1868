package shm

import (
	"cmp"
	"context"
	"errors"
	"net"

	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// Adopt makes an end of a wire from a connection that exists, a UNIX socket of type
// SOCK_SEQPACKET, and owns the connection. Another process does the same at the other end,
// in the other role. Path only names the wire in errors. Adopt returns once the link is up.
// When the peer goes the link is down for good. Errors are those of New.
func Adopt(ctx context.Context, c *net.UnixConn, o Options) (*Port, error) {
	o.Path = cmp.Or(o.Path, "@adopted")
	p, err := newPort(o)
	if err == nil && o.Role == RoleAuto {
		p.discard()
		err = errors.Join(ends.ErrOptions, errors.New("an adopted connection has a role"))
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	part := p.welcome
	if o.Role == RoleConnect {
		part = func(c *conn) (*session, error) { return p.introduce(c, true) }
	}
	s, err := greet(ctx, newConn(c), part)
	if err != nil {
		p.discard()
		return nil, &ends.Error{Op: "adopt", Device: "shm:" + o.Path, Err: err, Hint: hint(err)}
	}
	p.complete()
	p.begin(s)
	p.running.Go(func() { p.serve(s) })
	return p, nil
}
