package vfiouser_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// A NIC behind a socket is a device for another process, or for QEMU.
func ExampleServe() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	dir, err := os.MkdirTemp("", "nics")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "nic0.sock")
	nics, err := emulator.Fleet(ctx, "emu:", []string{socket})
	if err != nil {
		log.Fatal(err)
	}
	defer nics[0].Close()
	listener, err := vfiouser.Listen(socket, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- vfiouser.Serve(serving, listener, nics[0], vfiouser.ServerOptions{}) }()

	device, err := vfio.Open(ctx, "vfio-user:"+socket)
	if err != nil {
		log.Fatal(err)
	}
	config, err := vfio.ReadConfig(device)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("vendor %#04x\n", config.Vendor)
	if err := device.Close(); err != nil {
		log.Fatal(err)
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// vendor 0x1234
	// <nil>
}
