package fwcmd

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"strings"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/outfile"
)

// ringFlags name the key ring.
type ringFlags struct {
	Keys string `flag:"keys" help:"key ring: folder with public keys NAME.pub, and IDs of revoked ones in \"revoked\" (default: {ring})"`
}

// ring is the folder of the key ring, and whether the user named it.
func (f *ringFlags) ring() (dir string, asked bool) {
	return cmp.Or(f.Keys, firmware.DefaultKeyRing()), f.Keys != ""
}

// signed is the JSON output of sign and verify.
type signed struct {
	File   string `json:"file"`
	Digest string `json:"digest"`
	Key    string `json:"key"`
	Owner  string `json:"owner,omitempty" help:"the file of the key, of verify"`
}

type signFlags struct {
	Key    string `flag:"key" required:"a private key from 'trapeze fw keygen'" help:"file with the private key (PEM, PKCS #8)"`
	Output string `flag:"output,o" help:"file to write (default: IMAGE itself)"`
	cmdtable.Force
}

func (x *commands) sign(_ context.Context, f *signFlags, args []string) error {
	key, err := firmware.ReadPrivateKey(f.Key)
	if err != nil {
		return err
	}
	output := f.Output
	if output == "" && strings.HasPrefix(args[0], shippedPrefix) {
		return &option.Error{Option: "--output", Value: "", Allowed: "the file to write"}
	}
	if output != "" {
		if err := outfile.Check(output, f.Force.Force); err != nil {
			return outfile.Explain("--output", err)
		}
	}
	img, err := Open(args[0])
	if err != nil {
		return err
	}
	s, err := img.spec.Sign(key)
	if err != nil {
		return fmt.Errorf("%s: %w", img.file, err)
	}
	mode, replace := os.FileMode(0o644), f.Force.Force
	if output == "" {
		output, replace = args[0], true
		if st, err := os.Stat(output); err == nil {
			mode = st.Mode()
		}
	}
	if err := outfile.Write(output, mode, replace, s.Bytes()); err != nil {
		return outfile.Explain("--output", err)
	}
	r := signed{File: output, Digest: img.digest(), Key: firmware.IDOf(key.Public().(ed25519.PublicKey)).String()}
	return x.Report(r)
}

func (x *commands) verify(_ context.Context, f *ringFlags, args []string) error {
	img, err := Open(args[0])
	if err != nil {
		return err
	}
	dir, _ := f.ring()
	ring, err := openKeyRing(dir)
	if err != nil {
		return err
	}
	key, err := img.spec.Verify(ring)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	r := signed{File: args[0], Digest: img.digest(), Key: key.ID.String(), Owner: key.File}
	return x.Report(r)
}
