package fwcmd

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/outfile"
)

// keysFlag adds the flag that names the key ring.
func keysFlag(c *cobra.Command, keys *string) {
	c.Flags().StringVar(keys, "keys", "", `key ring: folder with public keys NAME.pub, and IDs of revoked ones in "revoked" (default: `+firmware.DefaultKeyRing()+")")
}

// keyRing is the folder of the key ring, and whether the user named it.
func keyRing(keys string) (dir string, asked bool) {
	if keys == "" {
		return firmware.DefaultKeyRing(), false
	}
	return keys, true
}

// signed is what sign --json and verify --json print.
type signed struct {
	File   string `json:"file"`
	Digest string `json:"digest"`
	Key    string `json:"key"`
	Owner  string `json:"owner,omitempty" help:"the file of the key, of verify"`
}

func (x *commands) sign() *cobra.Command {
	var keyFile, output string
	var force bool
	c := &cobra.Command{
		Use:   "sign IMAGE",
		Short: "Sign an image",
		Long: `Sign an image with an Ed25519 key. The signature covers the digest, which covers
all that runs, name and version included. It goes into the image's note, or to the
end of the manifest, in place of any other. Without --output the file is replaced,
whole or not at all.

` + keys.Of(signed{}),
		Example: `  trapeze fw keygen ~/keys/me
  trapeze fw sign count.img --key ~/keys/me.pem
  trapeze fw sign vendor.toml --key ~/keys/me.pem --output signed.toml`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if keyFile == "" {
				return &option.Error{Option: "--key", Value: "", Allowed: "a private key from 'trapeze fw keygen'"}
			}
			key, err := firmware.ReadPrivateKey(keyFile)
			if err != nil {
				return err
			}
			if output == "" && strings.HasPrefix(args[0], shippedPrefix) {
				return &option.Error{Option: "--output", Value: "", Allowed: "the file to write"}
			}
			if output != "" {
				if err := outfile.Check(output, force); err != nil {
					return outfile.Explain("--output", err)
				}
			}
			img, err := Open(args[0])
			if err != nil {
				return err
			}
			b, err := img.signed(key)
			if err != nil {
				return err
			}
			mode, replace := os.FileMode(0o644), force
			if output == "" {
				output, replace = args[0], true
				if st, err := os.Stat(output); err == nil {
					mode = st.Mode()
				}
			}
			if err := outfile.Write(output, mode, replace, b); err != nil {
				return outfile.Explain("--output", err)
			}
			r := signed{File: output, Digest: img.digest(), Key: firmware.IDOf(key.Public().(ed25519.PublicKey)).String()}
			return x.Printf(r, "%s: signed with key %s\n", r.File, r.Key)
		},
	}
	c.Flags().StringVar(&keyFile, "key", "", "file with the private key (PEM, PKCS #8)")
	c.Flags().StringVarP(&output, "output", "o", "", "file to write (default: IMAGE itself)")
	command.ForceFlag(c, &force)
	return c
}

func (x *commands) verify() *cobra.Command {
	var folder string
	c := &cobra.Command{
		Use:   "verify IMAGE",
		Short: "Check that an image is signed with a key that you trust",
		Long: `Check that an image is what its signer has signed, and that the signer's key is in
the key ring and not revoked. Exit code 1 says that it is not; stderr says why.

` + keys.Of(signed{}),
		Example: `  trapeze fw verify count.img --keys ~/keys`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			img, err := Open(args[0])
			if err != nil {
				return err
			}
			dir, _ := keyRing(folder)
			ring, err := firmware.OpenKeyRing(dir)
			if err != nil {
				return err
			}
			key, err := img.verify(ring)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			r := signed{File: args[0], Digest: img.digest(), Key: key.ID.String(), Owner: key.File}
			return x.Printf(r, "%s: signed with key %s (%s)\n", r.File, r.Key, r.Owner)
		},
	}
	keysFlag(c, &folder)
	return c
}
