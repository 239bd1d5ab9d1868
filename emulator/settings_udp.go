package emulator

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/trapeze-nic/trapeze/internal/wire/sealed"
)

func parseKey(s *settings, v string) error {
	if v == "" {
		return errors.New("it is a file with 64 hexadecimal digits")
	}
	s.keyFile = v
	return nil
}

// completeUDP checks what only can be checked once all options are known, and reads
// the key.
func (s *settings) completeUDP(options url.Values) (err error) {
	if s.kind != wireUDP {
		switch {
		case options.Has("peer"):
			return errors.New("option peer: only a UDP wire has peers, such as wire=udp://127.0.0.1:9000")
		case options.Has("key"):
			return errors.New("option key: only a UDP wire has a key, such as wire=udp://127.0.0.1:9000")
		}
		return nil
	}
	if s.keyFile != "" {
		if s.key, err = sealed.ReadKey(s.keyFile); err != nil {
			return fmt.Errorf("option key: %w", err)
		}
	}
	return nil
}
