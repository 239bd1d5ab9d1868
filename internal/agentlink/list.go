package agentlink

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// listTime bounds how long an agent may take to say what it has.
const listTime = 5 * time.Second

// Ask asks the agent at a socket which NICs it has, and who has them. If there is none, or it does not answer within
// 5 seconds, it fails with a *net.OpError. What it says is made printable. It fails with the error of ctx once that ends, and with ErrMessage.
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
		return nil, nil, fmt.Errorf("%w: kind %q: %s", ErrMessage, m.Kind, telemetry.Printable(m.Why))
	}
	for i := range m.NICs {
		n := &m.NICs[i]
		n.Name, n.State = telemetry.Printable(n.Name), telemetry.Printable(n.State)
	}
	for i := range m.Clients {
		c := &m.Clients[i]
		c.NIC, c.Station, c.Program, c.Grant = telemetry.Printable(c.NIC), telemetry.Printable(c.Station), telemetry.Printable(c.Program), telemetry.Printable(c.Grant)
	}
	return m.NICs, m.Clients, nil
}
