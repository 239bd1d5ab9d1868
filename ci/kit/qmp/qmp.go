// Package qmp talks to QEMU's monitor over the protocol for machines (QEMU
// documentation, "QEMU Machine Protocol").
package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// maxConversation bounds what QEMU may send during one conversation.
const maxConversation = 1 << 24

// Error is a command's failure in QEMU's words.
type Error struct {
	Command string
	Class   string
	Desc    string
}

func (e *Error) Error() string { return fmt.Sprintf("QEMU monitor: %s: %s", e.Command, e.Desc) }

// Client is a conversation with a monitor. It is for one goroutine at a time.
type Client struct {
	conn    net.Conn
	in      *json.Decoder
	out     *json.Encoder
	greeted bool
}

// New begins a conversation over conn, which stays the caller's. Nothing is sent or
// awaited before the first command.
func New(conn net.Conn) *Client {
	return &Client{conn: conn, in: json.NewDecoder(io.LimitReader(conn, maxConversation)), out: json.NewEncoder(conn)}
}

// Execute gives a command with its arguments, which may be nil, and returns the
// answer. It ends with ctx, which should have a deadline; the conversation is of no
// use after any error but an *Error.
func (c *Client) Execute(ctx context.Context, command string, arguments any) (json.RawMessage, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	answer, err := c.execute(command, arguments)
	if err != nil && !errors.As(err, new(*Error)) {
		return nil, fmt.Errorf("QEMU monitor: %s: %w", command, errors.Join(ctx.Err(), err))
	}
	return answer, err
}

func (c *Client) execute(command string, arguments any) (json.RawMessage, error) {
	if !c.greeted {
		var greeting struct{ QMP *json.RawMessage }
		if err := c.in.Decode(&greeting); err != nil {
			return nil, err
		}
		if greeting.QMP == nil {
			return nil, errors.New("no greeting of a monitor")
		}
		c.greeted = true
		if _, err := c.execute("qmp_capabilities", nil); err != nil {
			return nil, err
		}
	}
	request := struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments}
	if err := c.out.Encode(request); err != nil {
		return nil, err
	}
	for { // events come in between
		var m struct {
			Return json.RawMessage
			Error  *struct{ Class, Desc string }
		}
		if err := c.in.Decode(&m); err != nil {
			return nil, err
		}
		switch {
		case m.Error != nil:
			return nil, &Error{Command: command, Class: m.Error.Class, Desc: m.Error.Desc}
		case m.Return != nil:
			return m.Return, nil
		}
	}
}
