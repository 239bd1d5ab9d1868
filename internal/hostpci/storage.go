package hostpci

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"regexp"
	"strings"
)

// remote is storage that is reached over the network.
type remote struct {
	server netip.Addr
	what   string
}

// mount is a line of mountinfo (proc_pid_mountinfo(5)).
type mount struct {
	device  string // major:minor
	at      string
	kind    string
	source  string
	options string // of the file system
}

// readMounts reads the mounts that this process sees, and those that the first
// process sees if this one may know them.
func readMounts(r Root) ([]mount, error) {
	var list []mount
	seen := map[mount]bool{}
	for i, file := range []string{"proc/self/mountinfo", "proc/1/mountinfo"} {
		text, err := r.Text(file)
		if err != nil {
			if i > 0 || errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return nil, err
		}
		for line := range strings.Lines(text) {
			before, after, ok := strings.Cut(line, " - ")
			f, g := strings.Fields(before), strings.Fields(after)
			if !ok || len(f) < 5 || len(g) < 2 {
				return nil, fmt.Errorf("%s: %q is no mount", file, strings.TrimSpace(line))
			}
			m := mount{device: f[2], at: f[4], kind: g[0], source: g[1]}
			if len(g) > 2 {
				m.options = g[2]
			}
			if !seen[m] {
				seen[m] = true
				list = append(list, m)
			}
		}
	}
	return list, nil
}

// readRemotes lists the storage that is reached over the network and whose
// server has a known address: NFS and SMB mounts, NVMe over TCP or RDMA, iSCSI.
func readRemotes(r Root) ([]remote, error) {
	var list []remote
	mounts, err := readMounts(r)
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		// A server that is a name has its address among the options.
		server := option(m.options, "addr")
		if a, err := netip.ParseAddr(server); err == nil {
			list = append(list, remote{a, fmt.Sprintf("the %s mount at %s", m.kind, m.at)})
		}
	}
	controllers, err := r.Names("sys/class/nvme")
	if err != nil {
		return nil, err
	}
	for _, n := range controllers {
		dir := path.Join("sys/class/nvme", n)
		transport := r.Optional(path.Join(dir, "transport"))
		if a, err := netip.ParseAddr(option(r.Optional(path.Join(dir, "address")), "traddr")); err == nil && transport != "pcie" {
			list = append(list, remote{a, fmt.Sprintf("%s, NVMe over %s", n, transport)})
		}
	}
	sessions, err := r.Names("sys/class/iscsi_connection")
	if err != nil {
		return nil, err
	}
	for _, n := range sessions {
		dir := path.Join("sys/class/iscsi_connection", n)
		for _, file := range []string{"address", "persistent_address"} {
			if a, err := netip.ParseAddr(r.Optional(path.Join(dir, file))); err == nil {
				list = append(list, remote{a, "the iSCSI " + n})
				break
			}
		}
	}
	return list, nil
}

// option finds a value among "a=1,b=2".
func option(options, name string) string {
	for o := range strings.SplitSeq(options, ",") {
		if v, ok := strings.CutPrefix(o, name+"="); ok {
			return v
		}
	}
	return ""
}

const blockClass = "sys/class/block"

// nvmePath is one way to a disk that has several: its second number says which.
var nvmePath = regexp.MustCompile(`^(nvme\d+)c\d+(n\d+)$`)

// diskUses lists mounts and swap space on disks of a function, also through
// partitions, RAID, LVM and encryption.
func diskUses(r Root, address string) ([]Use, error) {
	names, err := r.Names(blockClass)
	if err != nil {
		return nil, err
	}
	var queue []string
	for _, n := range names {
		if ownerOf(r, path.Join(blockClass, n)) == address {
			queue = append(queue, n)
			if m := nvmePath.FindStringSubmatch(n); m != nil {
				queue = append(queue, m[1]+m[2])
			}
		}
	}
	if len(queue) == 0 {
		return nil, nil
	}
	mounts, err := readMounts(r)
	if err != nil {
		return nil, err
	}
	var uses []Use
	seen := map[string]bool{}
	for ; len(queue) > 0; queue = queue[1:] {
		disk := queue[0]
		if seen[disk] {
			continue
		}
		seen[disk] = true
		holders, err := r.Names(path.Join(blockClass, disk, "holders"))
		if err != nil {
			return nil, err
		}
		queue = append(queue, holders...)
		number := r.Optional(path.Join(blockClass, disk, "dev"))
		for _, m := range mounts {
			if m.device == number || m.source == "/dev/"+disk {
				uses = append(uses, Use{UseMount, disk, "the mount at " + m.at})
			}
		}
		for line := range strings.Lines(r.Optional("proc/swaps")) {
			if f := strings.Fields(line); len(f) > 0 && f[0] == "/dev/"+disk {
				uses = append(uses, Use{UseSwap, disk, ""})
			}
		}
	}
	return uses, nil
}
