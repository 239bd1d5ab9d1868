package emulator

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/trapeze-nic/trapeze/wire"
	"github.com/trapeze-nic/trapeze/wire/memif"
)

// memifSettings are the options that only a memif has.
var memifSettings = []string{"role", "id", "queues", "ring", "buffer", "mode", "secret"}

func parseRole(s *settings, v string) error {
	switch v {
	case "server":
		s.memif.Role = memif.Server
	case "client":
		s.memif.Role = memif.Client
	default:
		return errors.New("it is server or client")
	}
	return nil
}

func parseID(s *settings, v string) error {
	n, err := strconv.ParseUint(v, 10, 32)
	if err != nil {
		return errors.New("it is a number in 0..4294967295")
	}
	s.memif.ID = uint32(n)
	return nil
}

func parseMode(s *settings, v string) error {
	switch v {
	case "poll":
		s.memif.Polling = true
	case "interrupt":
		s.memif.Polling = false
	default:
		return errors.New("it is poll or interrupt")
	}
	return nil
}

func parseSecret(s *settings, v string) error {
	if len(v) < 1 || len(v) > memif.MaxSecret {
		return fmt.Errorf("it has 1 to %d bytes", memif.MaxSecret)
	}
	s.memif.Secret = v
	return nil
}

// number parses a number in low..high.
func number(at func(s *settings) *int, low, high int) func(s *settings, v string) error {
	return func(s *settings, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < low || n > high {
			return fmt.Errorf("it is a number in %d..%d", low, high)
		}
		*at(s) = n
		return nil
	}
}

// completeMemif checks what only can be checked once all options are known.
func (s *settings) completeMemif(options url.Values) error {
	if s.kind != wireMemif {
		for _, name := range memifSettings {
			if options.Has(name) && (name != "role" || s.kind != wireShared) {
				return fmt.Errorf("option %s: only a memif has it (and a shm wire a role), such as wire=memif:/run/x.sock&role=client", name)
			}
		}
		return nil
	}
	if s.memif.Role == 0 {
		return errors.New("option role: a memif needs role=server or role=client")
	}
	s.memif.Socket, s.memif.MTU = s.where, s.mtu
	return s.memif.Check()
}

// memifs makes n interfaces with ids in a row, which must exist.
func (s *settings) memifs(n int) (ports []wire.Port, err error) {
	defer func() {
		if err != nil {
			for _, p := range ports {
				err = errors.Join(err, p.Close())
			}
			ports = nil
		}
	}()
	for i := range n {
		o := s.memif
		o.ID += uint32(i)
		p, err := memif.New(o)
		if err != nil {
			return ports, err
		}
		ports = append(ports, p)
	}
	return ports, nil
}
