package firmware_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
)

// An image is read from a file, whoever made it, and its programs are proved safe.
func ExampleSpec_Check() {
	count, err := firmware.BuildShipped("count")
	if err != nil {
		log.Fatal(err)
	}
	spec, err := firmware.Parse(count.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(spec.Name, spec.Version)
	for _, v := range spec.Check() {
		fmt.Println(v.Hook, "safe:", v.Err == nil, "bounded:", v.Report.WorstCase > 0)
	}
	// Output:
	// count 1.0
	// filter/rx safe: true bounded: true
}

// An image is trusted if somebody has signed it whose public key is on the key ring.
func ExampleSpec_Sign() {
	dir, err := os.MkdirTemp("", "keys")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)) // 'trapeze fw keygen' makes a real one
	public, err := firmware.EncodePublicKey(private.Public().(ed25519.PublicKey))
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "me.pub"), public, 0o600); err != nil {
		log.Fatal(err)
	}
	ring, err := firmware.OpenKeyRing(dir)
	if err != nil {
		log.Fatal(err)
	}

	spec, err := firmware.BuildShipped("count")
	if err != nil {
		log.Fatal(err)
	}
	_, err = spec.Verify(ring)
	fmt.Println("unsigned:", errors.Is(err, firmware.ErrUnsigned))
	signed, err := spec.Sign(private)
	if err != nil {
		log.Fatal(err)
	}
	key, err := signed.Verify(ring)
	fmt.Println("signed by:", key.File, err)
	// Output:
	// unsigned: true
	// signed by: me.pub <nil>
}
