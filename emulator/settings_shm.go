package emulator

import (
	"errors"
	"net/url"

	"github.com/trapeze-nic/trapeze/wire/shm"
)

// parseAnyRole parses the role of a memif, or of a wire in shared memory.
func parseAnyRole(s *settings, v string) error {
	if role, err := shm.ParseRole(v); err == nil {
		s.shared.Role = role
		return nil
	}
	if parseRole(s, v) != nil {
		return errors.New("it is server or client of a memif, or listen, connect or auto of a shm wire")
	}
	return nil
}

func parseShare(s *settings, v string) error {
	switch v {
	case "on":
		s.shared.Share = true
	case "off":
		s.shared.Share = false
	default:
		return errors.New("it is on or off")
	}
	return nil
}

// completeShared checks what only can be checked once all options are known.
func (s *settings) completeShared(options url.Values) error {
	if s.kind != wireShared {
		if options.Has("share") {
			return errors.New("option share: only a wire in shared memory has it, such as wire=shm:/run/x.sock")
		}
		return nil
	}
	if s.memif.Role != 0 {
		return errors.New("option role: of a shm wire it is listen, connect or auto")
	}
	s.shared.Path, s.shared.MTU = s.where, s.mtu
	return s.shared.Check()
}
