package firmware

import (
	"crypto/ed25519"
	"fmt"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/bounded"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
)

// ReadObject reads a file for Parse or Build.
func ReadObject(name string) ([]byte, error) { return bounded.ReadFile(name, elfimage.MaxFile) }

// Open reads and parses an image. Errors name the file and wrap those of Parse.
func Open(name string) (*Spec, error) {
	b, err := ReadObject(name)
	if err != nil {
		return nil, err
	}
	s, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// ReadPrivateKey reads a file for DecodePrivateKey.
func ReadPrivateKey(name string) (ed25519.PrivateKey, error) {
	b, err := bounded.ReadFile(name, maxKeyFile)
	if err != nil {
		return nil, err
	}
	key, err := DecodePrivateKey(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return key, nil
}
