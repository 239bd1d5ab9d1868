package agentlink

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
)

// listTime bounds how long an agent may take to say what it has.
const listTime = 5 * time.Second

// Ask asks the agent at a socket which NICs it has, and who has them. If there is none, or it does not answer within
// 5 seconds, it fails with a *net.OpError. It fails with the error of ctx once that ends, and with ErrMessage.
func Ask(ctx context.Context, socket string) (nics []NIC, clients []Client, err error) {
	asked := ctx
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	var d net.Dialer
	found, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, nil, err
	}
	c := New(found.(*net.UnixConn))
	defer c.Close()
	defer context.AfterFunc(ctx, c.Interrupt)()
	m, fd := Message{}, -1
	if err = c.Send(Message{Kind: List, Version: Version}); err == nil {
		deadline, _ := ctx.Deadline()
		m, fd, err = c.Receive(deadline)
	}
	if fd >= 0 {
		_ = passedfd.Close(fd)
	}
	switch {
	case err != nil:
		return nil, nil, cmp.Or(asked.Err(), err)
	case fd >= 0 || m.Kind != List:
		return nil, nil, fmt.Errorf("%w: kind %q: %s", ErrMessage, m.Kind, m.Why)
	}
	return m.NICs, m.Clients, nil
}
