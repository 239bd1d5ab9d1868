package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
)

// A take-over has these steps. Until Over the old agent can go on as if nothing had been.
//
// The new agent says Replace. The old one lets no program in, and pauses. It passes State, and Lent for
// each client. The new one says Checked. The old one closes the ports of its NICs, and says Closed. The
// new one opens them, and says Opened. The old one says Over, and the new one Serving. The old one leaves.
const (
	// stepTime bounds each step, and handTime the one behind Over: the new agent does nothing there
	// that could take long.
	stepTime, handTime = 2 * time.Second, 10 * time.Second
	// visitTime bounds the wait for programs that are about to have a NIC. Frames pass meanwhile.
	visitTime, visitLook = time.Second, time.Millisecond
)

// errLeft: the new agent has everything, and has not said that it serves.
var errLeft = errors.New("the new agent has everything, and does not say that it serves")

// handOver gives everything to another agent. It fails if that comes to nothing: the agent goes on then.
func (a *Agent) handOver(ctx context.Context, c *agentlink.Conn, who *identity) error {
	if who.uid != 0 && who.uid != uint32(os.Geteuid()) {
		return refuse(fmt.Sprintf("user %d may not replace it: its own user and root may", who.uid))
	}
	if !a.replacing.TryLock() {
		return refuseWith(unix.EBUSY, "another agent is about to replace it")
	}
	defer a.replacing.Unlock()
	a.closeEntrance()
	begun := time.Now()
	a.pause()
	h := &handover{agent: a, conn: c}
	err := h.run()
	if err == nil || errors.Is(err, errLeft) {
		a.log.Info("replaced", "pid", who.pid, "after", time.Since(begun))
		if a.successor = who.pid; a.successor == 0 {
			a.successor = -1
		}
		h.leave()
		a.end(err)
		return nil
	}
	h.back()
	a.start(ctx)
	a.log.Warn("an agent could not take over; this one goes on", "pid", who.pid, "after", time.Since(begun), "error", err)
	if _, ok := errors.AsType[*agentlink.RefusedError](err); ok {
		return nil // it knows
	}
	return refuse("it goes on: " + err.Error())
}

// closeEntrance lets no more programs in, and waits a while for those that are about to have a NIC.
func (a *Agent) closeEntrance() {
	a.mu.Lock()
	w := a.work
	a.mu.Unlock()
	if w == nil {
		return
	}
	w.shut()
	const self = 1 // the new agent is a visitor too
	for end := time.Now().Add(visitTime); a.visiting.Load() > self && time.Now().Before(end); {
		time.Sleep(visitLook)
	}
}

// handover is a take-over as the old agent sees it.
type handover struct {
	agent  *Agent
	conn   *agentlink.Conn
	paused []*client
	over   bool // the new agent may have used the clients' memory
}

// run takes the steps. It fails with errLeft if it cannot be said whether the new agent serves.
func (h *handover) run() error {
	a := h.agent
	for _, l := range a.all() {
		if l.port.Pause() == nil { // or it is gone
			h.paused = append(h.paused, l)
		}
	}
	if err := h.tell(); err != nil {
		return err
	}
	if err := expect(h.conn, agentlink.Checked, stepTime); err != nil {
		return err
	}
	for _, n := range a.nics {
		if err := n.shut(); err != nil {
			a.log.Warn("cannot close a NIC well", "nic", n.Name, "error", err)
		}
	}
	if err := h.conn.Send(agentlink.Message{Kind: agentlink.Closed}); err != nil {
		return err
	}
	if err := expect(h.conn, agentlink.Opened, openTime+stepTime); err != nil {
		return err
	}
	if err := h.conn.Send(agentlink.Message{Kind: agentlink.Over}); err != nil {
		return err
	}
	h.over = true
	err := expect(h.conn, agentlink.Serving, handTime)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errLeft
	}
	return err
}

// tell passes the state, and each client.
func (h *handover) tell() error {
	a := h.agent
	s := state{Version: stateVersion, Clients: len(h.paused), Removes: a.listener.Removes(),
		Supervisor: supervisor{os.Getenv("NOTIFY_SOCKET"), os.Getenv("WATCHDOG_USEC")}}
	for _, n := range a.nics {
		s.NICs = append(s.NICs, nicState{n.Name, n.received.Load(), n.unknown.Load()})
	}
	fd, err := unixsocket.Duplicate(a.listener)
	if err == nil {
		err = pass(h.conn, agentlink.State, &s, fd)
	}
	for _, l := range h.paused {
		if err == nil {
			err = h.lend(l)
		}
	}
	return err
}

func (h *handover) lend(l *client) error {
	st, fds, err := l.port.State()
	if err != nil {
		return err
	}
	control, err := unixsocket.Duplicate(l.conn.UnixConn)
	if err != nil {
		agentlink.Drop(fds)
		return err
	}
	return pass(h.conn, agentlink.Lent, &clientState{NIC: l.nic.Name, Station: l.mac.String(), Program: l.program, VIs: l.vis,
		Memory: l.memory, Checksum: l.nic.checksum, Counters: l.stats(), Wire: st}, append([]int{control}, fds...)...)
}

// pass sends a part of the state with descriptors, which it closes.
func pass(c *agentlink.Conn, kind string, part any, fds ...int) error {
	defer agentlink.Drop(fds)
	text, err := json.Marshal(part)
	if err != nil {
		return err
	}
	return c.Send(agentlink.Message{Kind: kind, State: text}, fds...)
}

// expect waits for a message of a kind without a descriptor.
func expect(c *agentlink.Conn, kind string, timeout time.Duration) error {
	_, fds, err := part(c, kind, timeout)
	agentlink.Drop(fds)
	return err
}

// part waits for a message of a kind, with descriptors that are the caller's.
func part(c *agentlink.Conn, kind string, timeout time.Duration) (text []byte, fds []int, err error) {
	m, fds, err := c.ReceiveMany(time.Now().Add(timeout), agentlink.MaxPassed)
	switch {
	case err != nil:
		err = fmt.Errorf("wait for %q of the other agent: %w", kind, err)
	case m.Kind == agentlink.Refuse:
		err = &agentlink.RefusedError{Why: m.Why, Errno: unix.Errno(m.Errno)}
	case m.Kind != kind:
		err = fmt.Errorf("%w: kind %q, want %q", agentlink.ErrMessage, m.Kind, kind)
	}
	if err != nil {
		agentlink.Drop(fds)
		return nil, nil, err
	}
	return m.State, fds, nil
}

// leave closes what is the new agent's from now on. Clients that it does not have are let go.
func (h *handover) leave() {
	for _, l := range h.paused {
		l.port.Leave()
		l.conn.Leave()
		h.agent.leave(l)
	}
	for _, l := range h.agent.all() {
		h.agent.dismiss(l)
	}
}

// back makes the clients go on; start opens the NICs again. If the new one has died behind Over, clients begin anew.
func (h *handover) back() {
	for _, l := range h.paused {
		if h.over {
			h.agent.dismiss(l)
		} else {
			l.port.Resume()
		}
	}
}
