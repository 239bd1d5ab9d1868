package fwcmd

import (
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/outfile"
)

// generated is the JSON output of keygen.
type generated struct {
	Private string `json:"private" help:"file"`
	Public  string `json:"public" help:"file"`
	Key     string `json:"key" help:"its ID"`
}

func (x *commands) keygen(_ context.Context, _ *cmdtable.NoFlags, args []string) error {
	if _, name := filepath.Split(args[0]); strings.Trim(name, ".") == "" {
		return &option.Error{Option: "NAME", Value: args[0], Allowed: "a name, with or without a folder before it"}
	}
	r := generated{Private: args[0] + ".pem", Public: args[0] + ".pub"}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	r.Key = firmware.IDOf(public).String()
	if err := writeKeys(&r, public, private); err != nil {
		return err
	}
	return x.Report(r)
}

// writeKeys writes both files or none.
func writeKeys(r *generated, public ed25519.PublicKey, private ed25519.PrivateKey) error {
	for _, path := range []string{r.Private, r.Public} {
		if err := outfile.Check(path, false); err != nil {
			return err
		}
	}
	secret, err := firmware.EncodePrivateKey(private)
	if err != nil {
		return err
	}
	open, err := firmware.EncodePublicKey(public)
	if err != nil {
		return err
	}
	if err := outfile.Write(r.Private, 0o600, false, secret); err != nil {
		return err
	}
	if err := outfile.Write(r.Public, 0o644, false, open); err != nil {
		return errors.Join(err, os.Remove(r.Private))
	}
	return nil
}
