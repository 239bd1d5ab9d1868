module github.com/trapeze-nic/trapeze/vipl

go 1.26.0

replace github.com/trapeze-nic/trapeze => ..

require (
	github.com/trapeze-nic/trapeze v0.0.0-00010101000000-000000000000
	golang.org/x/sys v0.49.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0 // indirect
	github.com/cilium/ebpf v0.22.0 // indirect
	github.com/flynn/noise v1.1.0 // indirect
	github.com/gofrs/flock v0.13.0 // indirect
	github.com/vishvananda/netlink v1.3.1 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	golang.org/x/crypto v0.58.0 // indirect
)
